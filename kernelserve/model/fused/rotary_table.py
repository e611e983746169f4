"""Cosines and sines of the rotary embedding for every position so far."""

from __future__ import annotations

import torch

from kernelserve.model.fused.decoder_structure import RotaryStructure

__all__ = ["RotaryTable"]

_FIRST_SIZE = 1024


class RotaryTable:
    """float32 [positions, rotary_dim / 2] each, computed as transformers does it; grows when needed."""

    def __init__(self, rotary: RotaryStructure) -> None:
        self._inv_freq = torch.tensor(rotary.inv_freq, dtype=torch.float32)
        self._scaling = rotary.scaling
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
        angles = torch.arange(size, dtype=torch.float32)[:, None] * self._inv_freq
        self.cosines = angles.cos() * self._scaling
        self.sines = angles.sin() * self._scaling
