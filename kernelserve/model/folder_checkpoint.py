"""A model in a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kernelserve.errors import ModelFilesError, UnsupportedModelError
from kernelserve.model import model_defaults
from kernelserve.model.model_files import read_json, weight_bytes, weight_files
from kernelserve.model.paged_attention import attention_names
from kernelserve.model.stored_tensors import StoredTensors
from kernelserve.model.tokenizer_files import convert_tokenizer, tokenizer_key
from kernelserve.paths import cache_dir

__all__ = ["FolderCheckpoint"]


class FolderCheckpoint:
    """config.json, weights in safetensors (or .bin), and the tokenizer beside them."""

    stored_dtype: torch.dtype | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tensors: StoredTensors | None = None

    def read_config(self) -> Any:
        from transformers import AutoConfig

        path = self.folder / "config.json"
        kind = read_json(path).get("model_type")
        try:
            return AutoConfig.from_pretrained(str(self.folder))
        except Exception as error:
            if not kind or "model type" in str(error) or "trust_remote_code" in str(error):
                raise UnsupportedModelError(
                    f"transformers knows no model of type {kind!r} "
                    "(code that comes with a model is never run)"
                ) from error
            raise ModelFilesError(f"{path} is not usable: {error}") from error

    def weight_bytes(self, bytes_per_element: int) -> int:
        return weight_bytes(weight_files(self.folder), bytes_per_element)

    def prefetch(self, dtype: torch.dtype) -> None:
        """Nothing to do: safetensors are mapped, not read."""

    def load(self, model_class: Any, config: Any, *, dtype: torch.dtype, device: Any) -> Any:
        module, report = model_class.from_pretrained(
            str(self.folder),
            config=config,
            dtype=dtype,
            attn_implementation=attention_names(config),
            device_map=None if device.type == "cpu" else {"": device},
            output_loading_info=True,
        )
        if missing := sorted(report["missing_keys"]):
            raise ModelFilesError(
                f"{self.folder} lacks {len(missing)} weights of the model, such as {missing[0]}"
            )
        return module

    def fingerprint(self) -> str:
        path = self.folder / "config.json"
        return path.read_text() if path.is_file() else ""

    def leave_matrices(self) -> bool:
        return False

    def stored_matrix(self, _path: str, /) -> None:
        return None

    def weight(self, name: str, /) -> torch.Tensor | None:
        if self._tensors is None:
            self._tensors = StoredTensors(weight_files(self.folder))
        return self._tensors.get(name)

    def tokenizer_dir(self) -> str:
        if (self.folder / "tokenizer.json").is_file():
            return str(self.folder)
        key = tokenizer_key(self.folder)
        if not key:
            return ""
        return convert_tokenizer(cache_dir() / "tokenizers" / key, self._load_tokenizer)

    def processor_dir(self) -> str:
        return str(self.folder)

    def eos_token_ids(self, of_config: Sequence[int], tokenizer_dir: str) -> list[int]:
        return model_defaults.eos_token_ids(self.folder, tokenizer_dir, of_config)

    def generation_defaults(self) -> dict[str, Any]:
        return model_defaults.generation_defaults(self.folder)

    def _load_tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(self.folder), use_fast=True)
