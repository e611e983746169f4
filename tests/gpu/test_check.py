"""The check of GPUs: on a GPU it passes; anywhere else it can at least be run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.helpers.triton_here import triton_path

pytestmark = pytest.mark.timeout(300)

SCRIPT = Path(__file__).with_name("check.sh")


def run(*arguments: str) -> str:
    result = subprocess.run(
        [SCRIPT, *arguments],
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_check_runs_in_the_interpreter() -> None:
    triton_path()
    lines = run("--interpreter").splitlines()
    for part in (
        "ceilings: copy",
        "attention,   2 decoding",
        "cache write",
        "the layers run in Triton",
        "tiny,   2 decoding",
    ):
        assert any(line.startswith(part) for line in lines), part
    assert lines[-1].endswith("the kernels are right")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_the_kernels_are_right_on_this_gpu() -> None:
    assert run().splitlines()[-1].endswith("the kernels are right")
