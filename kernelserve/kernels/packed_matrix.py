"""A weight matrix as the kernels read it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch

from kernelserve.kernels.structures import MatrixStruct

__all__ = ["PackedMatrix"]


@dataclass(slots=True, frozen=True)
class PackedMatrix:
    """Panels of 16 outputs (cpu/weights.h), and the memory that `struct` points to."""

    struct: MatrixStruct
    data: torch.Tensor
    bias: torch.Tensor | None
    """float32 [n]"""

    @property
    def n(self) -> int:
        """Outputs."""
        return int(self.struct.n)

    @property
    def k(self) -> int:
        """Inputs."""
        return int(self.struct.k)

    @property
    def nbytes(self) -> int:
        """Memory of the weights and the bias."""
        return self.data.nbytes + (0 if self.bias is None else self.bias.nbytes)

    @property
    def pointer(self) -> ctypes._Pointer[MatrixStruct]:
        """What the kernels are called with."""
        return ctypes.pointer(self.struct)
