#!/usr/bin/env bash
# Checks the GPU path on a machine with an NVIDIA GPU, in under five minutes, and prints how fast it is beside what the
# machine can do. Needs Python with torch for CUDA, transformers, numpy and msgspec: `make setup` there, or PYTHON=...
# `tests/gpu/check.sh --interpreter` shows on any machine that the script itself is right, with tiny sizes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-.venv/bin/python}
[ -n "${PYTHON:-}" ] || [ -x "$python" ] || python=python3
PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" exec "$python" -m tests.gpu.check "$@"
