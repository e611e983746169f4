"""The compiled kernels as Python calls on tensors."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p
from pathlib import Path

import torch

from kernelserve.errors import KernelBuildError
from kernelserve.kernels.packed_matrix import PackedMatrix
from kernelserve.kernels.stored_matrix import Source, StoredMatrix
from kernelserve.kernels.structures import DecoderStruct, MatrixStruct, StepStruct

__all__ = ["FOUR_BITS", "CpuKernels"]

FOUR_BITS = 4
"""Format of packed 4-bit weights, whichever source they had (cpu/weights.h)."""
_FORMAT_OF = {source: min(int(source), FOUR_BITS) for source in Source}
_SIGNATURES: dict[str, tuple[type | None, list[type]]] = {
    "ks_packed_bytes": (c_int64, [c_int32, c_int64, c_int64]),
    "ks_pack": (None, [c_int32, c_void_p, c_void_p, c_int64, c_int64, c_void_p, c_int32]),
    "ks_linear": (None, [POINTER(MatrixStruct), c_void_p, c_void_p, c_int64, c_int32]),
    "ks_read_rows": (c_int64, [POINTER(MatrixStruct), c_void_p, c_int64, c_void_p]),
    "ks_norm_rows": (None, [c_void_p, c_void_p, c_int64, c_int64, c_void_p, c_float, c_void_p]),
    "ks_scratch_floats": (c_int64, [POINTER(DecoderStruct), c_int64]),
    "ks_decode": (None, [POINTER(DecoderStruct), POINTER(StepStruct), c_int32]),
}


class CpuKernels:
    """Calls run on torch's number of threads and release the interpreter lock. Tensors are float32 and contiguous."""

    def __init__(self, path: Path) -> None:
        """Load a library of `build_library`. Raises KernelBuildError if it cannot be loaded."""
        try:
            library = ctypes.CDLL(str(path))
        except OSError as error:
            raise KernelBuildError(f"{path} cannot be loaded: {error}") from error
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        self._library = library

    def pack(self, stored: StoredMatrix, bias: torch.Tensor | None = None) -> PackedMatrix:
        """Lay a matrix out for `linear`; nothing of `stored` is referred to afterwards."""
        kind = _FORMAT_OF[stored.source]
        size = self._library.ks_packed_bytes(kind, stored.n, stored.k)
        data = torch.empty(size, dtype=torch.uint8)
        order = None if stored.order is None else stored.order.data_ptr()
        self._library.ks_pack(
            stored.source, stored.data.data_ptr(), order, stored.n, stored.k, data.data_ptr(),
            torch.get_num_threads(),
        )  # fmt: skip
        bias = None if bias is None else bias.detach().float().contiguous()
        bias_pointer = None if bias is None else bias.data_ptr()
        struct = MatrixStruct(data.data_ptr(), stored.n, stored.k, kind, 0, bias_pointer)
        return PackedMatrix(struct, data, bias)

    def linear(self, x: torch.Tensor, weight: PackedMatrix) -> torch.Tensor:
        """Return x W^T + bias, [rows, n] of x [rows, k]: bit for bit the same for a row in any company."""
        y = torch.empty(len(x), weight.n)
        self._library.ks_linear(
            weight.pointer, x.data_ptr(), y.data_ptr(), len(x), torch.get_num_threads()
        )
        return y

    def read_rows(self, weight: PackedMatrix, indices: torch.Tensor) -> torch.Tensor:
        """Return the rows [len(indices), k] of a matrix: a look-up of embeddings.

        Indices are int64. Raises IndexError if the matrix has no such row.
        """
        rows = torch.empty(len(indices), weight.k)
        count = self._library.ks_read_rows(
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
        self._library.ks_norm_rows(
            x.data_ptr(), indices.data_ptr(), len(indices), x.shape[1], weight.data_ptr(), eps,
            y.data_ptr(),
        )  # fmt: skip
        return y

    def scratch_floats(self, decoder: DecoderStruct, rows: int) -> int:
        """Return how many float32 a step of so many rows needs besides its hidden states."""
        return int(self._library.ks_scratch_floats(decoder, rows))

    def decode(self, decoder: DecoderStruct, step: StepStruct) -> None:
        """Run all layers over the rows of a step; see cpu/layers.h."""
        self._library.ks_decode(decoder, step, torch.get_num_threads())
