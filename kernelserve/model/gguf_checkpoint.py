"""A model in a .gguf file."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from kernelserve.errors import EngineStartError, UnsupportedModelError
from kernelserve.kernels import StoredMatrix
from kernelserve.model import model_defaults
from kernelserve.model.assigned_weights import module_of
from kernelserve.model.gguf_config import hf_weight_name, llama_family_config
from kernelserve.model.gguf_dequantize import dequantize, one_thread
from kernelserve.model.gguf_file import GgufFile
from kernelserve.model.gguf_matrices import GgufMatrices
from kernelserve.model.paged_attention import ATTENTION_NAME
from kernelserve.model.tokenizer_files import convert_tokenizer, gguf_tokenizer_folder

__all__ = ["GgufCheckpoint"]

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
        self._matrices = GgufMatrices(self.file)
        self._is_fast = self._matrices.is_known
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
        total = 0
        for tensor in self.file.tensors:
            is_left_out = hf_weight_name(tensor.name) in self.left_out
            total += tensor.num_bytes if is_left_out else tensor.num_elements * bytes_per_element
        return total

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
        self.left_out = self._matrices.names_to_leave_out()
        return bool(self.left_out)

    def weight(self, name: str, /) -> torch.Tensor | None:
        if name not in self._matrices.tensors:
            return None
        return self._values(name, torch.float32)

    def stored_matrix(self, path: str, /) -> StoredMatrix | None:
        return self._matrices.stored_matrix(path)

    def tokenizer_dir(self) -> str:
        return convert_tokenizer(gguf_tokenizer_folder(self.file), self._load_tokenizer)

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
        names = self._matrices.tensors.keys() - self.left_out
        with one_thread():
            return {name: self._values(name, dtype) for name in names}

    def _values(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        tensor = self._matrices.tensors[name]
        values = dequantize(self.file, tensor, dtype)
        order = self._matrices.row_order(tensor)
        return values if order is None else values[torch.from_numpy(order)]
