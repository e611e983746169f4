"""Greedy answers about images equal `model.generate`, whatever else happens in the engine."""

from __future__ import annotations

import functools
import random
from typing import Any

import pytest
import torch

from kernelserve.protocol import FinishReason
from tests.helpers.exact_vision import ExactVisionModel, random_text
from tests.helpers.tiny_vision_models import VISION_ARCHITECTURES, VisionPrompt, random_image

ARCHITECTURES = sorted(VISION_ARCHITECTURES)
NUM_TOKENS = 10


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that makes the ExactVisionModel of an architecture once."""
    torch.set_num_threads(1)

    @functools.cache
    def make(arch: str) -> ExactVisionModel:
        return ExactVisionModel(arch, tmp_path_factory.mktemp(arch))

    return make


def prompts_of(model: ExactVisionModel) -> list[VisionPrompt]:
    """One image, several of different sizes, one twice, none, and one whose range covers more."""
    arch = model.arch

    def image(seed: int) -> Any:
        return random_image(arch, seed, seed)

    def one(rng: random.Random) -> VisionPrompt:
        return VisionPrompt.build(random_text(rng, 5), image(0), random_text(rng, 6))

    def several(rng: random.Random) -> VisionPrompt:
        parts = [random_text(rng, 3), image(1), image(0), random_text(rng, 7), image(4)]
        return VisionPrompt.build(*parts, random_text(rng, 2))

    def repeated(rng: random.Random) -> VisionPrompt:
        return VisionPrompt.build(image(0), random_text(rng, 9), image(0), random_text(rng, 1))

    def text(rng: random.Random) -> VisionPrompt:
        return VisionPrompt.build(random_text(rng, 17))

    def masked(rng: random.Random) -> VisionPrompt:
        parts = [random_text(rng, 2), image(2), image(1), random_text(rng, 4)]
        return VisionPrompt.build(*parts, masked=True)

    return [
        model.clear_prompt(make, NUM_TOKENS, seed)
        for seed, make in enumerate((one, several, repeated, text, masked))
    ]


@pytest.mark.parametrize("chunk", [1, 5, 16, 0])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_greedy_equals_generate_for_any_chunk_size(models: Any, arch: str, chunk: int) -> None:
    model = models(arch)
    prompts = prompts_of(model)
    results = model.generate(model.driver(chunk=chunk), prompts, NUM_TOKENS)
    model.check(prompts, results, NUM_TOKENS)
    assert all(result.finish_reason == FinishReason.LENGTH for result in results)
