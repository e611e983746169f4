"""Which attention backend an engine gets, and what is said when it cannot have the one it asked for."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from kernelserve.attention.choice import make_backend
from kernelserve.attention.torch_backend import TorchAttention
from kernelserve.errors import InvalidConfigError
from tests.helpers.triton_here import interpreted_triton


@pytest.fixture
def interpreter() -> Iterator[None]:
    with interpreted_triton():
        yield


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Make believe that there is a GPU and all that Triton needs; tests take parts of it away."""
    here: dict[str, Any] = {"capability": (9, 0), "triton": True, "compiler": True}
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: here["capability"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: "found" if here["triton"] else None)
    monkeypatch.setattr(shutil, "which", lambda name: name if here["compiler"] else None)
    return here


def test_a_cpu_gets_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert isinstance(make_backend("auto", "cpu"), TorchAttention)
    assert isinstance(make_backend("torch", "auto"), TorchAttention)
    with pytest.raises(InvalidConfigError, match="needs an NVIDIA GPU, and device='cpu'"):
        make_backend("triton", "cpu")


def test_a_name_that_is_none() -> None:
    with pytest.raises(InvalidConfigError, match="'flash' is not one of auto, torch, triton"):
        make_backend("flash", "auto")


@pytest.mark.parametrize(
    ("lack", "words"),
    [
        ({"triton": False}, "needs the package triton"),
        ({"capability": (7, 5)}, "capability 8.0, and this one has 7.5"),
        ({"compiler": False}, "needs a C compiler"),
    ],
)
def test_a_gpu_that_cannot_run_triton(
    gpu: dict[str, Any], lack: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    gpu.update(lack)
    with pytest.raises(InvalidConfigError, match=words):
        make_backend("triton", "cuda:1")
    with caplog.at_level("INFO", "kernelserve"):
        assert isinstance(make_backend("auto", "auto"), TorchAttention)
    assert words in caplog.text
    assert isinstance(make_backend("auto", "cpu"), TorchAttention)


def test_a_gpu_gets_triton(interpreter: None, gpu: dict[str, Any]) -> None:
    from kernelserve.attention.triton_backend import TritonAttention

    assert isinstance(make_backend("auto", "auto"), TritonAttention)
    assert isinstance(make_backend("triton", "cuda:0"), TritonAttention)
    assert isinstance(make_backend("auto", "cpu"), TorchAttention)


def test_the_interpreter_runs_where_it_is_asked_for(interpreter: None) -> None:
    from kernelserve.attention.triton_backend import TritonAttention

    assert isinstance(make_backend("triton", "cpu"), TritonAttention)
    assert isinstance(make_backend("auto", "cpu"), TorchAttention)
