"""What transformers itself answers to a prompt with images: its processor, its model, its generate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.helpers.tiny_processors import make_tiny_processor
from tests.helpers.tiny_vision_models import IMAGE_TOKEN, make_tiny_vision_model

__all__ = ["VisionReference"]


class VisionReference:
    """A tiny random vision-language model in a folder, and its greedy answers in float32."""

    def __init__(self, arch: str, folder: Path) -> None:
        self.arch = arch
        self.folder = make_tiny_processor(arch, make_tiny_vision_model(arch, folder))
        self._model: Any = None
        self._processor: Any = None

    def answer(self, text: str, images: list[Any], max_tokens: int) -> list[int]:
        """Return the ids of the answer; `text` has one placeholder for each image."""
        import torch

        nested = self.arch in ("idefics3", "llava_onevision", "smolvlm") and images
        inputs = self.processor(
            images=[images] if nested else images or None, text=[text], return_tensors="np"
        )
        tensors = {name: torch.from_numpy(value) for name, value in inputs.items()}
        ids = tensors["input_ids"]
        if "mm_token_type_ids" in tensors:
            tensors["mm_token_type_ids"] = (ids == IMAGE_TOKEN).long()
        with torch.no_grad():
            answer = self.model.generate(**tensors, max_new_tokens=max_tokens, do_sample=False)
        return [int(one) for one in answer[0, ids.shape[1] :]]

    @property
    def processor(self) -> Any:
        """The model's processor without videos."""
        if self._processor is None:
            from kernelserve.multimodal.hf_processor import HFProcessor
            from kernelserve.multimodal.processor_messages import ProcessorSpec

            spec = ProcessorSpec(str(self.folder), str(self.folder))
            self._processor = HFProcessor(spec)._processor
        return self._processor

    @property
    def model(self) -> Any:
        """The same weights in transformers, untouched."""
        if self._model is None:
            import torch
            from transformers import AutoModelForImageTextToText

            self._model = AutoModelForImageTextToText.from_pretrained(
                self.folder, attn_implementation="eager", dtype=torch.float32
            ).eval()
            self._model.generation_config.eos_token_id = None
        return self._model
