"""The model in training: SmolLM2 frozen, its eyes not."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import LlavaForConditionalGeneration, PreTrainedTokenizerFast

from kernelserve.config import VISION_MODEL
from kernelserve.errors import ModelFilesError
from kernelserve.model.embedded import embedded_gguf
from kernelserve.model.gguf_checkpoint import GgufCheckpoint
from kernelserve.model.joined_checkpoint import VISION_WEIGHTS, JoinedCheckpoint
from kernelserve.model.model_source import locate_model

__all__ = ["PictureModel"]

_SETTINGS = (
    "config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "chat_template.jinja",
)


class PictureModel:
    """A LLaVA model in float32 whose vision tower and projector learn."""

    def __init__(self, module: Any, tokenizer: Any, settings: Path) -> None:
        self.module = module
        self.tokenizer = tokenizer
        self._settings = settings

    @classmethod
    def start(cls, settings: Path | None = None, seed: int = 0) -> PictureModel:
        """Return a model with new eyes, made as the config in `settings` says (that of the package)."""
        settings = settings or locate_model(VISION_MODEL)
        checkpoint = JoinedCheckpoint(settings, GgufCheckpoint(embedded_gguf()))
        config = checkpoint.read_config()
        config._attn_implementation = "sdpa"
        torch.manual_seed(seed)
        module = LlavaForConditionalGeneration(config)
        module.load_state_dict(checkpoint.text_weights(torch.float32), strict=False)
        module.tie_weights()
        module.requires_grad_(False)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(checkpoint.tokenizer_dir())
        model = cls(module, tokenizer, settings)
        for part in model.eyes:
            part.requires_grad_(True)
            part.apply(_initialise)
        return model

    @property
    def eyes(self) -> tuple[Any, Any]:
        """The vision tower and the projector."""
        return self.module.model.vision_tower, self.module.model.multi_modal_projector

    def look(self, pixels: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return the tower's hidden states and the image embeddings [B, 25, 576] of pixels [B, 3, 160, 160]."""
        tower, projector = self.eyes
        hidden_states = tower(pixels, output_hidden_states=True).hidden_states
        return hidden_states, projector(hidden_states[-1])

    def word_embeddings(self, words: list[str]) -> Tensor:
        """Return the text model's embeddings [n, 576] of words that are one token each."""
        ids = [self.tokenizer.encode(word, add_special_tokens=False) for word in words]
        assert all(len(one) == 1 for one in ids)
        embeddings: Tensor = self.module.get_input_embeddings()(torch.tensor(ids)[:, 0])
        return embeddings.detach()

    def save(self, folder: Path) -> None:
        """Write the folder that kernelserve loads, the eyes in float16."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in _SETTINGS:
            if (self._settings / name).resolve() != (folder / name).resolve():
                shutil.copyfile(self._settings / name, folder / name)
        state = self.module.state_dict()
        eyes = {
            name: value.half().contiguous()
            for name, value in state.items()
            if "vision_tower." in name or "multi_modal_projector." in name
        }
        save_file(eyes, folder / VISION_WEIGHTS)

    def load_eyes(self, folder: Path) -> None:
        """Go on from what `save` wrote. Raises ModelFilesError if there is nothing."""
        if not (folder / VISION_WEIGHTS).is_file():
            raise ModelFilesError(f"{folder} has no {VISION_WEIGHTS}")
        eyes = {name: value.float() for name, value in load_file(folder / VISION_WEIGHTS).items()}
        report = self.module.load_state_dict(eyes, strict=False)
        assert not report.unexpected_keys


def _initialise(module: nn.Module) -> None:
    """Start from weights that keep the size of what goes through: transformers' 0.02 is too small here."""
    if isinstance(module, nn.Conv2d):
        fan_in = module.weight[0].numel()
        nn.init.normal_(module.weight, std=math.sqrt(2 / fan_in))
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=math.sqrt(1 / module.in_features))
