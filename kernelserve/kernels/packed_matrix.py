"""A weight matrix as the kernels read it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelserve.kernels.structures import MatrixStruct

__all__ = ["FOUR_BITS", "PackedMatrix"]

FOUR_BITS = 4
"""Format of packed 4-bit weights, whichever source they had (cpu/weights.h)."""


@dataclass(slots=True, frozen=True)
class PackedMatrix:
    """Panels of 16 outputs (cpu/weights.h), and the memory that `struct` points to."""

    struct: MatrixStruct
    data: NDArray[np.uint8]
    bias: NDArray[np.float32] | None
    """[n]"""

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
