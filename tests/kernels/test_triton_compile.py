"""The Triton kernels compile for GPUs: the interpreter takes what the compiler refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.triton_here import triton_path

SHARED_BYTES = 99 * 1024
"""What a program can have on all GPUs of compute capability 8 and 9."""


@pytest.mark.timeout(600)
def test_kernels_compile_and_fit(tmp_path: Path) -> None:
    triton_path()
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    run = subprocess.run(
        [sys.executable, "-m", "tests.helpers.compiled_kernels"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    kernels = json.loads(run.stdout)
    names = ["write_kv", "rotate_and_write", "attend", "merge", "attend", "add_norm", "gate"]
    assert [kernel["kernel"] for kernel in kernels] == names
    for kernel in kernels:
        assert kernel["stack"] == 0, f"registers do not suffice: {kernel}"
        assert kernel["shared"] <= SHARED_BYTES, kernel
        assert (kernel["matrix"] > 0) == (kernel["kernel"] == "attend"), kernel
