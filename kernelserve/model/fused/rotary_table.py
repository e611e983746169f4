"""Cosines and sines of the rotary embedding for every position so far."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["RotaryTable"]

_FIRST_SIZE = 1024


class RotaryTable:
    """float32 [positions, rotary_dim / 2] each, as the model's own module computes them; grows when needed."""

    def __init__(self, rotary: Any) -> None:
        self._rotary = rotary
        self.cosines = self.sines = torch.empty(0, 0)
        self.cover(1)

    @property
    def rotary_dim(self) -> int:
        """Numbers of a head that are rotated."""
        return 2 * self.cosines.shape[1]

    def cover(self, count: int) -> None:
        """See to it that the positions below `count` are there."""
        if count <= len(self.cosines):
            return
        size = max(_FIRST_SIZE, 1 << (count - 1).bit_length())
        positions = torch.arange(size)[None]
        cosines, sines = self._rotary(torch.zeros(1, dtype=torch.float32), positions)
        half = cosines.shape[-1] // 2  # the second half repeats the first
        self.cosines = cosines[0, :, :half].contiguous()
        self.sines = sines[0, :, :half].contiguous()
