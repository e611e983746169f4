"""Chooses the device and the dtype that a model computes in."""

from __future__ import annotations

from typing import Any

import torch

from kernelserve.errors import InvalidConfigError
from kernelserve.model.cpu_features import cpu_computes_bfloat16

__all__ = ["choose_device", "choose_dtype"]


def choose_device(device: str) -> torch.device:
    """Return the device of this name; `auto` prefers a GPU. Raises InvalidConfigError."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise InvalidConfigError(f"device={device!r} is not a torch device") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise InvalidConfigError(f"device={device!r}: torch sees no NVIDIA GPU here")
    return chosen


def choose_dtype(asked: str, stored: Any, device: torch.device) -> torch.dtype:
    """`auto`: the checkpoint's own, but float32 on a CPU that does not compute in bfloat16."""
    if asked != "auto":
        chosen: torch.dtype = getattr(torch, asked)
        return chosen
    is_float = isinstance(stored, torch.dtype) and stored.is_floating_point
    own: torch.dtype = stored if is_float else torch.float32
    if device.type == "cuda":
        return own
    is_half = own.itemsize == 2 and cpu_computes_bfloat16()
    return torch.bfloat16 if is_half else torch.float32
