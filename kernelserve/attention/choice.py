"""Chooses the attention backend of an engine."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import sysconfig
from pathlib import Path

import torch

from kernelserve.attention.backend import AttentionBackend
from kernelserve.attention.torch_backend import TorchAttention
from kernelserve.errors import InvalidConfigError

__all__ = ["make_backend"]

logger = logging.getLogger(__name__)

_NAMES = ("auto", "torch", "triton")
_LOWEST_CAPABILITY = (8, 0)


def make_backend(name: str, device: str) -> AttentionBackend:
    """Return the backend for `device`, a setting of the engine: "auto" stands for a GPU if there is one.

    `auto` is Triton on a GPU that can run it and torch elsewhere; the log says why not. With TRITON_INTERPRET=1
    `triton` also runs on a CPU. Raises InvalidConfigError if what is asked for by name cannot run.
    """
    if name not in _NAMES:
        raise InvalidConfigError(f"attention_backend={name!r} is not one of {', '.join(_NAMES)}")
    on_gpu = torch.cuda.is_available() and (device == "auto" or device.startswith("cuda"))
    if name == "torch" or (name == "auto" and not on_gpu):
        return TorchAttention()
    problem = _why_not_triton(device, on_gpu=on_gpu)
    if problem and name == "auto":
        logger.info("The attention runs in torch: Triton %s", problem)
        return TorchAttention()
    if problem:
        raise InvalidConfigError(
            f"attention_backend='triton' {problem}: take 'torch', or 'auto' for the best that runs"
        )
    from kernelserve.attention.triton_backend import TritonAttention

    return TritonAttention()


def _why_not_triton(device: str, *, on_gpu: bool) -> str:
    """Empty: it runs."""
    is_interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if not on_gpu and not is_interpreted:
        here = "torch sees none here" if device == "auto" else f"device={device!r}"
        return f"needs an NVIDIA GPU, and {here}"
    if importlib.util.find_spec("triton") is None:
        return "needs the package triton, which torch's builds for CUDA bring along"
    if is_interpreted:
        return ""
    index = device.partition(":")[2]
    capability = torch.cuda.get_device_capability(int(index) if index.isdecimal() else None)
    if capability < _LOWEST_CAPABILITY:
        found, wanted = (".".join(map(str, pair)) for pair in (capability, _LOWEST_CAPABILITY))
        return f"needs a GPU of compute capability {wanted}, and this one has {found}"
    compilers = (os.environ.get("CC", ""), "cc", "gcc", "clang")
    if not any(name and shutil.which(name) for name in compilers):
        return "needs a C compiler to call its kernels (gcc or clang), and none is installed"
    if not (Path(sysconfig.get_path("include", "posix_prefix")) / "Python.h").is_file():
        return "needs the header files of Python to call its kernels (on Debian: python3-dev)"
    return ""
