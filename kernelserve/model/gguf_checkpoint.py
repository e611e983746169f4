"""A model in a .gguf file."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from kernelserve.errors import EngineStartError, UnsupportedModelError
from kernelserve.kernels import Source, StoredMatrix
from kernelserve.model import model_defaults
from kernelserve.model.assigned_weights import module_of
from kernelserve.model.gguf_config import hf_weight_name, is_llama_family, llama_family_config
from kernelserve.model.gguf_dequantize import dequantize, one_thread
from kernelserve.model.gguf_file import GgufFile, GgufTensor
from kernelserve.model.paged_attention import ATTENTION_NAME
from kernelserve.model.tokenizer_files import convert_tokenizer
from kernelserve.paths import cache_dir

__all__ = ["GgufCheckpoint"]

_SOURCES = {
    0: Source.FLOAT32,
    1: Source.FLOAT16,
    2: Source.Q4_0,
    3: Source.Q4_1,
    8: Source.Q8_0,
    30: Source.BFLOAT16,
}
"""Types of tensors that our kernels compute with as they are."""
_END_TOKENS = ("eos", "eot", "eom")


class GgufCheckpoint:
    """One file with config, tokenizer and quantized weights, which are unpacked at load.

    Files of the Llama family are read here, in under a second for a small one; all others by
    transformers' own GGUF loader, which takes some 30 seconds for a small one.
    """

    stored_dtype: torch.dtype | None = torch.bfloat16

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = GgufFile(path)
        self._is_fast = is_llama_family(self.file)
        self._tensors = {hf_weight_name(tensor.name): tensor for tensor in self.file.tensors}
        self.left_out: frozenset[str] = frozenset()
        """Weights that `load` and `unpacked` do not give."""
        self._weights: Future[dict[str, torch.Tensor]] | None = None

    def read_config(self) -> Any:
        from transformers import AutoConfig

        try:
            if self._is_fast:
                values = llama_family_config(self.file)
                return AutoConfig.for_model(self.file.architecture, **values)
            return AutoConfig.from_pretrained(str(self.path.parent), gguf_file=self.path.name)
        except EngineStartError:
            raise
        except Exception as error:
            raise UnsupportedModelError(
                f"{self.path.name} holds a model of type {self.file.architecture!r}, which "
                f"transformers cannot read from GGUF: {error}"
            ) from error

    def weight_bytes(self, bytes_per_element: int) -> int:
        return sum(
            tensor.num_bytes if name in self.left_out else tensor.num_elements * bytes_per_element
            for name, tensor in self._tensors.items()
        )

    def prefetch(self, dtype: torch.dtype) -> None:
        if self._is_fast:
            torch.get_num_threads()  # settles the number for this thread before the other one lowers its own
            pool = ThreadPoolExecutor(1, "kernelserve-unpack")
            self._weights = pool.submit(self._unpack, dtype)
            pool.shutdown(wait=False)

    def load(self, model_class: Any, config: Any, *, dtype: torch.dtype, device: Any) -> Any:
        if not self._is_fast:
            module = model_class.from_pretrained(
                str(self.path.parent),
                gguf_file=self.path.name,
                config=config,
                dtype=dtype,
                attn_implementation=ATTENTION_NAME,
            )
            return module.to(device)
        weights = self.unpacked(dtype)
        module = module_of(model_class, config, weights, source=self.path, left_out=self.left_out)
        return module.to(device)

    def unpacked(self, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        """Return the weights of a file of the Llama family under transformers' names, once."""
        weights = self._weights.result() if self._weights else self._unpack(dtype)
        self._weights = None
        return weights

    def fingerprint(self) -> str:
        return self.file.header_digest()

    def leave_matrices(self) -> bool:
        matrices = {name: t for name, t in self._tensors.items() if len(t.shape) > 1}
        in_layers = {t.ggml_type for name, t in matrices.items() if ".layers." in name}
        outside = {t.ggml_type for t in matrices.values()} - in_layers
        # Matrices that are packed below each other must be of one type.
        if not self._is_fast or len(in_layers) != 1 or not in_layers | outside <= _SOURCES.keys():
            return False
        self.left_out = frozenset(matrices)
        return True

    def weight(self, name: str, /) -> torch.Tensor | None:
        if not self._is_fast or name not in self._tensors:
            return None
        return self._values(name, torch.float32)

    def stored_matrix(self, path: str, /) -> StoredMatrix | None:
        tensor = self._tensors.get(f"{path}.weight")
        if not self._is_fast or tensor is None or tensor.ggml_type not in _SOURCES:
            return None
        data = torch.frombuffer(
            self.file.data, dtype=torch.uint8, count=tensor.num_bytes, offset=tensor.start
        )
        rows, columns = tensor.shape
        source = _SOURCES[tensor.ggml_type]
        return StoredMatrix(source, data, rows, columns, self._row_order(tensor))

    def tokenizer_dir(self) -> str:
        target = cache_dir() / "tokenizers" / f"gguf-{self.file.header_digest()[:24]}"
        return convert_tokenizer(target, self._load_tokenizer)

    def processor_dir(self) -> str:
        return ""

    def eos_token_ids(self, of_config: Sequence[int], tokenizer_dir: str) -> list[int]:
        found = model_defaults.eos_token_ids(Path(tokenizer_dir), tokenizer_dir, of_config)
        named = (self.file.metadata.get(f"tokenizer.ggml.{kind}_token_id") for kind in _END_TOKENS)
        return list(dict.fromkeys([*found, *(token for token in named if token is not None)]))

    def generation_defaults(self) -> dict[str, Any]:
        return {}

    def _load_tokenizer(self) -> Any:
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast.from_pretrained(
            str(self.path.parent), gguf_file=self.path.name
        )

    def _unpack(self, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        with one_thread():
            return {
                name: self._values(name, dtype) for name in self._tensors.keys() - self.left_out
            }

    def _values(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        tensor = self._tensors[name]
        values = dequantize(self.file, tensor, dtype)
        order = self._row_order(tensor)
        return values if order is None else values[order]

    def _row_order(self, tensor: GgufTensor) -> torch.Tensor | None:
        """Which row of the file is row i of the model; None: row i itself.

        llama.cpp stores the rotary pairs of Llama side by side, transformers half a head apart.
        """
        heads = {".attn_q.": "num_attention_heads", ".attn_k.": "num_key_value_heads"}
        found = next((field for part, field in heads.items() if part in tensor.name), None)
        if found is None or self.file.architecture != "llama":
            return None
        num_heads = llama_family_config(self.file)[found]
        rows = torch.arange(tensor.shape[0]).view(num_heads, -1, 2)
        return rows.transpose(1, 2).flatten()
