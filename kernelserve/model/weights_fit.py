"""Refuses weights that are larger than the memory that is free."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from kernelserve.errors import WeightsMemoryError
from kernelserve.model.device_memory import available_bytes, format_bytes

if TYPE_CHECKING:
    from kernelserve.model.checkpoint import Checkpoint

__all__ = ["check_weights_fit", "out_of_memory_at_weights"]


def check_weights_fit(checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device) -> str:
    """Return the numbers in words. Raises WeightsMemoryError."""
    needed, free = checkpoint.weight_bytes(dtype.itemsize), available_bytes(device)
    numbers = f"they take {format_bytes(needed)} in {dtype}, {device} has {format_bytes(free)} free"
    if needed > free:
        raise WeightsMemoryError(f"the weights do not fit: {numbers}")
    return numbers


@contextmanager
def out_of_memory_at_weights(numbers: str) -> Iterator[None]:
    """Turn errors of Python and torch into a WeightsMemoryError with the numbers."""
    try:
        yield
    except Exception as error:
        expected = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not expected and "allocate memory" not in str(error):
            raise
        raise WeightsMemoryError(f"out of memory at the weights: {numbers}") from error
