"""The compiled kernels, and packing with them."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kernelserve.errors import KernelBuildError
from kernelserve.kernels.packed_matrix import FOUR_BITS, PackedMatrix
from kernelserve.kernels.stored_matrix import Source, StoredMatrix
from kernelserve.kernels.structures import DecoderStruct, MatrixStruct, StepStruct

__all__ = ["KernelLibrary"]

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


class KernelLibrary:
    """A library of `build_library` with the signatures of its functions. Calls release the interpreter lock."""

    def __init__(self, path: Path) -> None:
        """Load it. Raises KernelBuildError if it cannot be loaded."""
        try:
            self.functions = ctypes.CDLL(str(path))
        except OSError as error:
            raise KernelBuildError(f"{path} cannot be loaded: {error}") from error
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self.functions, name)
            function.restype, function.argtypes = result, arguments

    def pack(
        self, stored: StoredMatrix, bias: NDArray[np.float32] | None, *, num_threads: int
    ) -> PackedMatrix:
        """Lay a matrix out for `ks_linear`; nothing of `stored` is referred to afterwards."""
        kind = _FORMAT_OF[stored.source]
        size = self.functions.ks_packed_bytes(kind, stored.n, stored.k)
        data: NDArray[np.uint8] = np.empty(size, np.uint8)
        order = None if stored.order is None else stored.order.ctypes.data
        self.functions.ks_pack(
            stored.source, stored.data.ctypes.data, order, stored.n, stored.k, data.ctypes.data,
            num_threads,
        )  # fmt: skip
        bias_pointer = None if bias is None else bias.ctypes.data
        struct = MatrixStruct(data.ctypes.data, stored.n, stored.k, kind, 0, bias_pointer)
        return PackedMatrix(struct, data, bias)
