"""The matrices of a GGUF file as our kernels read them. Knows no torch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernelserve.kernels import Source, StoredMatrix
from kernelserve.model.gguf_config import hf_weight_name, is_llama_family, llama_family_config
from kernelserve.model.gguf_file import GgufFile, GgufTensor

__all__ = ["GgufMatrices"]

_SOURCES = {
    0: Source.FLOAT32,
    1: Source.FLOAT16,
    2: Source.Q4_0,
    3: Source.Q4_1,
    8: Source.Q8_0,
    30: Source.BFLOAT16,
}
"""Types of tensors that our kernels compute with as they are."""


class GgufMatrices:
    """Tensors of a file of the Llama family by transformers' names; none of any other file."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self.is_known = is_llama_family(file)
        """Whether the file is of the family."""
        self.tensors: dict[str, GgufTensor] = {}
        if self.is_known:
            self.tensors = {hf_weight_name(tensor.name): tensor for tensor in file.tensors}
            self._orders = self._make_orders()

    def stored_matrix(self, path: str, /) -> StoredMatrix | None:
        """Return the weight of the module at `path` as it is; None if the kernels do not know its type."""
        tensor = self.tensors.get(f"{path}.weight")
        if tensor is None or tensor.ggml_type not in _SOURCES:
            return None
        data = np.frombuffer(self._file.data, np.uint8, tensor.num_bytes, tensor.start)
        rows, columns = tensor.shape
        source = _SOURCES[tensor.ggml_type]
        return StoredMatrix(source, data, rows, columns, self.row_order(tensor))

    def names_to_leave_out(self) -> frozenset[str]:
        """Return the names of all matrices if `stored_matrix` has them all, else none."""
        matrices = {name: t for name, t in self.tensors.items() if len(t.shape) > 1}
        in_layers = {t.ggml_type for name, t in matrices.items() if ".layers." in name}
        outside = {t.ggml_type for t in matrices.values()} - in_layers
        # Matrices that are packed below each other must be of one type.
        if len(in_layers) != 1 or not in_layers | outside <= _SOURCES.keys():
            return frozenset()
        return frozenset(matrices)

    def row_order(self, tensor: GgufTensor) -> NDArray[np.int64] | None:
        """Return which row of the file is row i of the model; None: row i itself.

        llama.cpp stores the rotary pairs of Llama side by side, transformers half a head apart.
        """
        return next((order for part, order in self._orders.items() if part in tensor.name), None)

    def _make_orders(self) -> dict[str, NDArray[np.int64]]:
        if self._file.architecture != "llama":
            return {}
        config = llama_family_config(self._file)
        rows = {tensor.name: tensor.shape[0] for tensor in self._file.tensors}
        return {
            ".attn_q.": _in_halves(rows["blk.0.attn_q.weight"], config["num_attention_heads"]),
            ".attn_k.": _in_halves(rows["blk.0.attn_k.weight"], config["num_key_value_heads"]),
        }


def _in_halves(num_rows: int, num_heads: int) -> NDArray[np.int64]:
    rows = np.arange(num_rows, dtype=np.int64).reshape(num_heads, -1, 2)
    return np.ascontiguousarray(rows.transpose(0, 2, 1)).reshape(-1)
