"""The compiled kernels as Python calls on tensors."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelserve.kernels.kernel_library import KernelLibrary
from kernelserve.kernels.packed_matrix import PackedMatrix
from kernelserve.kernels.stored_matrix import StoredMatrix
from kernelserve.kernels.structures import DecoderStruct, StepStruct

__all__ = ["CpuKernels"]


class CpuKernels:
    """Calls run on torch's number of threads and release the interpreter lock. Tensors are float32 and contiguous."""

    def __init__(self, path: Path) -> None:
        """Load a library of `build_library`. Raises KernelBuildError if it cannot be loaded."""
        self._library = KernelLibrary(path)
        self._functions = self._library.functions

    def pack(self, stored: StoredMatrix, bias: torch.Tensor | None = None) -> PackedMatrix:
        """Lay a matrix out for `linear`; nothing of `stored` is referred to afterwards."""
        array = None if bias is None else bias.detach().float().contiguous().numpy()
        return self._library.pack(stored, array, num_threads=torch.get_num_threads())

    def linear(self, x: torch.Tensor, weight: PackedMatrix) -> torch.Tensor:
        """Return x W^T + bias, [rows, n] of x [rows, k]: bit for bit the same for a row in any company."""
        y = torch.empty(len(x), weight.n)
        self._functions.ks_linear(
            weight.pointer, x.data_ptr(), y.data_ptr(), len(x), torch.get_num_threads()
        )
        return y

    def read_rows(self, weight: PackedMatrix, indices: torch.Tensor) -> torch.Tensor:
        """Return the rows [len(indices), k] of a matrix: a look-up of embeddings.

        Indices are int64. Raises IndexError if the matrix has no such row.
        """
        rows = torch.empty(len(indices), weight.k)
        count = self._functions.ks_read_rows(
            weight.pointer, indices.data_ptr(), len(indices), rows.data_ptr()
        )
        if count < len(indices):
            raise IndexError(f"row {int(indices[count])} of a matrix that has {weight.n}")
        return rows

    def norm_rows(
        self, x: torch.Tensor, indices: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> torch.Tensor:
        """Return RMSNorm of the rows of x [T, hidden] at `indices`, int64."""
        y = torch.empty(len(indices), x.shape[1])
        self._functions.ks_norm_rows(
            x.data_ptr(), indices.data_ptr(), len(indices), x.shape[1], weight.data_ptr(), eps,
            y.data_ptr(),
        )  # fmt: skip
        return y

    def scratch_floats(self, decoder: DecoderStruct, rows: int) -> int:
        """Return how many float32 a step of so many rows needs besides its hidden states."""
        return int(self._functions.ks_scratch_floats(decoder, rows))

    def decode(self, decoder: DecoderStruct, step: StepStruct) -> None:
        """Run all layers over the rows of a step; see cpu/layers.h."""
        self._functions.ks_decode(decoder, step, torch.get_num_threads())
