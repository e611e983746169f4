"""Triton for tests: torch's own on a machine with a GPU, else the one that `make test` keeps in a folder of its own.

It is kept out of the environment because torch imports Triton where it finds it: 0.15 s at the start of every engine.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["interpreted_triton", "triton_path"]


def triton_path() -> str:
    """Return the folder to add to sys.path, "" if none is needed. Skips the test if there is no Triton."""
    if importlib.util.find_spec("triton") is not None:
        return ""
    folders = sorted(Path(sys.prefix).glob("triton-*/triton/__init__.py"))
    if not folders:
        assert os.environ.get("CI") != "true", "make test installs Triton"
        pytest.skip("Triton is not installed; `make test` does it")
    return str(folders[-1].parents[1])


@contextmanager
def interpreted_triton() -> Iterator[None]:
    """Let the kernels run on the CPU, in Triton's interpreter, while this lasts."""
    path, before = triton_path(), os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"
    if path:
        sys.path.append(path)
    try:
        # Whether kernels are compiled or interpreted is decided once, when they are defined.
        import kernelserve.attention.triton_backend  # noqa: F401

        yield
    finally:
        if path:
            sys.path.remove(path)
        if before is None:
            del os.environ["TRITON_INTERPRET"]
        else:
            os.environ["TRITON_INTERPRET"] = before
