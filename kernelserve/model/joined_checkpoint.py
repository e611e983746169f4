"""A folder with a vision tower and a projector, joined at load with a text model that lies elsewhere."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kernelserve.errors import ModelFilesError
from kernelserve.kernels import StoredMatrix
from kernelserve.model.assigned_weights import module_of
from kernelserve.model.gguf_checkpoint import GgufCheckpoint
from kernelserve.model.model_files import read_json, weight_bytes
from kernelserve.model.tokenizer_files import make_folder_once

__all__ = ["VISION_WEIGHTS", "JoinedCheckpoint", "text_model_of"]

VISION_WEIGHTS = "vision.safetensors"
_TEMPLATE = "chat_template.jinja"
_TEXT_PREFIX, _JOINED_PREFIX = "model.", "model.language_model."


def text_model_of(folder: Path) -> str | None:
    """Return the name of the text model that the folder is to be joined with; None if it is a whole model."""
    path = folder / "config.json"
    name = read_json(path).get("text_model") if path.is_file() else None
    return str(name) if name else None


class JoinedCheckpoint:
    """`vision.safetensors`, `config.json` without a text config, the processor's settings and a chat template.

    The text model is a .gguf file of the Llama family. All of its own is used but the chat template.
    """

    stored_dtype: torch.dtype | None = torch.bfloat16

    def __init__(self, folder: Path, text: GgufCheckpoint) -> None:
        self.folder = folder
        self._text = text

    def read_config(self) -> Any:
        from transformers import AutoConfig

        values = read_json(self.folder / "config.json")
        del values["text_model"]
        kind = values.pop("model_type")
        text_config = self._text.read_config()
        try:
            return AutoConfig.for_model(kind, text_config=text_config, **values)
        except Exception as error:
            raise ModelFilesError(
                f"{self.folder / 'config.json'} is not usable: {error}"
            ) from error

    def weight_bytes(self, bytes_per_element: int) -> int:
        weights = self.folder / VISION_WEIGHTS
        if not weights.is_file():
            raise ModelFilesError(f"{self.folder} has no {VISION_WEIGHTS}")
        vision = weight_bytes([weights], bytes_per_element)
        return vision + self._text.weight_bytes(bytes_per_element)

    def prefetch(self, dtype: torch.dtype) -> None:
        self._text.prefetch(dtype)

    def load(self, model_class: Any, config: Any, *, dtype: torch.dtype, device: Any) -> Any:
        from safetensors.torch import load_file

        weights = self.text_weights(dtype)
        seeing = load_file(self.folder / VISION_WEIGHTS)
        weights |= {name: value.to(dtype) for name, value in seeing.items()}
        module = module_of(
            model_class,
            config,
            weights,
            source=self.folder / VISION_WEIGHTS,
            left_out={_joined_name(name) for name in self._text.left_out},
        )
        return module.to(device)

    def text_weights(self, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        """Return the weights of the text model under their names in the joined model, once."""
        text = self._text.unpacked(dtype)
        return {_joined_name(name): value for name, value in text.items()}

    def fingerprint(self) -> str:
        return (self.folder / "config.json").read_text() + self._text.fingerprint()

    def leave_matrices(self) -> bool:
        return self._text.leave_matrices()

    def stored_matrix(self, path: str, /) -> StoredMatrix | None:
        return self._text.stored_matrix(_text_name(path))

    def weight(self, name: str, /) -> torch.Tensor | None:
        return self._text.weight(_text_name(name))

    def tokenizer_dir(self) -> str:
        """The text model's tokenizer with this model's chat template, which tells where an image goes."""
        source = Path(self._text.tokenizer_dir())
        template = (self.folder / _TEMPLATE).read_bytes()
        digest = hashlib.sha256(template).hexdigest()[:12]
        target = source.with_name(f"{source.name}-{digest}")

        def fill(new: Path) -> None:
            shutil.copytree(source, new, dirs_exist_ok=True)
            (new / _TEMPLATE).write_bytes(template)

        make_folder_once(target, fill)
        return str(target)

    def processor_dir(self) -> str:
        return str(self.folder)

    def eos_token_ids(self, of_config: Sequence[int], tokenizer_dir: str) -> list[int]:
        return self._text.eos_token_ids(of_config, tokenizer_dir)

    def generation_defaults(self) -> dict[str, Any]:
        return self._text.generation_defaults()


def _joined_name(name: str) -> str:
    """The name of a text weight inside the model of both."""
    if name.startswith(_TEXT_PREFIX):
        return f"{_JOINED_PREFIX}{name.removeprefix(_TEXT_PREFIX)}"
    return name


def _text_name(name: str) -> str:
    """The other way round."""
    if name.startswith(_JOINED_PREFIX):
        return f"{_TEXT_PREFIX}{name.removeprefix(_JOINED_PREFIX)}"
    return name
