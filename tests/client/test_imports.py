"""The client's front half is light: no torch, numpy or transformers, Jinja2 only when used."""

from __future__ import annotations

import subprocess
import sys


def test_the_front_half_loads_no_heavy_package():
    code = (
        "import sys, kernelserve.client.input_processor, kernelserve.client.output_processor\n"
        "print(sorted({'torch', 'numpy', 'jinja2', 'transformers', 'IPython'} & sys.modules.keys()))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
