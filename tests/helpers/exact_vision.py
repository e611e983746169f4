"""A vision-language model, our executor for it, and what transformers itself makes of the same prompts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kernelserve.config import EngineConfig
from kernelserve.executor.uniproc import UniProcExecutor
from tests.helpers.engine_driver import EngineDriver, Result, greedy
from tests.helpers.exact import greedy_answer
from tests.helpers.tiny_vision_models import TinyImage, VisionPrompt, make_tiny_vision_model

__all__ = ["ExactVisionModel", "random_text"]

_PROMPT_IDS = 250
_CLEAR_GAP = 1e-3


def random_text(rng: random.Random, length: int) -> list[int]:
    """Return token ids without special ones."""
    return [rng.randrange(_PROMPT_IDS) for _ in range(length)]


class ExactVisionModel:
    """Runs prompts with images on our engine and on transformers, both in float32 on one thread."""

    def __init__(self, arch: str, folder: Path, *, dtype: str = "float32", **changes: Any) -> None:
        self.arch = arch
        self.folder = make_tiny_vision_model(arch, folder, **changes)
        config = EngineConfig(
            model=str(folder),
            dtype=dtype,
            device="cpu",
            block_size=4,
            num_gpu_blocks=600,
            num_threads=1,
        )
        self.executor = UniProcExecutor(config, lambda *_: None)
        self._plain: Any = None
        self._answers: dict[tuple[Any, ...], tuple[list[int], float]] = {}

    @property
    def plain(self) -> Any:
        """The same weights in transformers, untouched."""
        if self._plain is None:
            from transformers import AutoModelForImageTextToText

            self._plain = AutoModelForImageTextToText.from_pretrained(
                str(self.folder), attn_implementation="eager", dtype=torch.float32
            ).eval()
            self._plain.generation_config.eos_token_id = None
        return self._plain

    def driver(self, **options: Any) -> EngineDriver:
        """Return a fresh scheduler over the executor, which must be idle."""
        assert self.executor.num_known_requests == 0
        assert self.executor._worker is not None
        encoder = self.executor._worker.runner._encoder
        assert encoder is not None
        encoder.free(list(encoder._outputs))  # the new scheduler does not know of them
        return EngineDriver(self.executor, **options)

    def clear_prompt(
        self, make: Callable[[random.Random], VisionPrompt], num_tokens: int, seed: int = 0
    ) -> VisionPrompt:
        """Return a random prompt whose best token is never nearly tied with the second."""
        rng = random.Random(seed)
        while True:
            prompt = make(rng)
            if self._answer(prompt, num_tokens)[1] > _CLEAR_GAP:
                return prompt

    def generate(
        self, driver: EngineDriver, prompts: Sequence[VisionPrompt], num_tokens: int
    ) -> list[Result]:
        """Run prompts together to their ends."""
        first = len(driver.requests)
        names = [f"r{first + i}" for i in range(len(prompts))]
        for name, prompt in zip(names, prompts, strict=True):
            driver.add(name, prompt.token_ids, greedy(num_tokens), mm_features=prompt.features)
        results = driver.run()
        return [results[name] for name in names]

    def check(
        self, prompts: Sequence[VisionPrompt], results: Sequence[Result], num_tokens: int
    ) -> None:
        """Assert that every result is the greedy answer of `model.generate`."""
        for number, (prompt, result) in enumerate(zip(prompts, results, strict=True)):
            expected = self._answer(prompt, num_tokens)[0]
            assert result.token_ids == expected, f"prompt {number}: {result.stop_reason}"

    def plain_logprobs(self, prompt: VisionPrompt) -> torch.Tensor:
        """Return log-softmax [n, vocab] of one plain forward pass over a prompt."""
        with torch.inference_mode():
            logits = self.plain(torch.tensor([prompt.token_ids]), **self._arguments(prompt)).logits
        result: torch.Tensor = logits[0].float().log_softmax(-1)
        return result

    def _answer(self, prompt: VisionPrompt, num_tokens: int) -> tuple[list[int], float]:
        """Return the answer, and by how much its tokens were better than the second best."""
        hashes = (feature.mm_hash for feature in prompt.features)
        key = (num_tokens, *prompt.token_ids, *hashes)
        if key not in self._answers:
            self._answers[key] = greedy_answer(
                self.plain, prompt.token_ids, num_tokens, **self._arguments(prompt)
            )
        return self._answers[key]

    def _arguments(self, prompt: VisionPrompt) -> dict[str, torch.Tensor]:
        """All images of a prompt as the model's processor would join them."""
        images = prompt.images
        if not images:
            return {}
        if self.arch == "llava_onevision":
            return _join_patches(images)
        axis = 1 if self.arch in ("idefics3", "smolvlm") else 0
        arguments = {
            name: torch.from_numpy(np.concatenate([image.arrays[name] for image in images], axis))
            for name in images[0].arrays
        }
        if self.arch.startswith("qwen") or self.arch == "gemma3":
            is_image = torch.zeros(1, len(prompt.token_ids), dtype=torch.int64)
            for image, feature in zip(images, prompt.features, strict=True):
                position = feature.position
                first = position.offset + (position.is_embed is not None)
                is_image[0, first : first + image.num_embeds] = 1
            name = "token_type_ids" if self.arch == "gemma3" else "mm_token_type_ids"
            arguments[name] = is_image
        return arguments


def _join_patches(images: list[TinyImage]) -> dict[str, torch.Tensor]:
    """LLaVA-OneVision pads the tiles of the images to the most that one of them has."""
    patches = [image.arrays["pixel_values"] for image in images]
    most = max(array.shape[1] for array in patches)
    padded = [
        np.pad(array, ((0, 0), (0, most - array.shape[1]), (0, 0), (0, 0), (0, 0)))
        for array in patches
    ]
    arguments = {
        "pixel_values": torch.from_numpy(np.concatenate(padded)),
        "image_sizes": torch.from_numpy(
            np.concatenate([image.arrays["image_sizes"] for image in images])
        ),
    }
    if most == 1:
        arguments["batch_num_images"] = torch.tensor([max(2, len(images))])
    return arguments
