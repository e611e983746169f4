"""What a picture costs, what it shares, and what a bad one does to others."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernelserve.model.vision_model import VisionModel
from kernelserve.protocol import FinishReason, MultiModalFeatureSpec
from tests.helpers.engine_driver import greedy
from tests.helpers.exact_vision import ExactVisionModel, random_text
from tests.helpers.tiny_vision_models import TinyImage, VisionPrompt, random_image

NUM_TOKENS = 6


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ExactVisionModel:
    torch.set_num_threads(1)
    return ExactVisionModel("llava", tmp_path_factory.mktemp("llava"))


def good_prompts(model: ExactVisionModel) -> list[VisionPrompt]:
    def make(rng: random.Random) -> VisionPrompt:
        length, seed = rng.randrange(3, 6), rng.randrange(3)
        return VisionPrompt.build(
            random_text(rng, length), random_image("llava", seed), random_text(rng, 2)
        )

    return [model.clear_prompt(make, NUM_TOKENS, seed) for seed in range(3)]


def test_images_of_equal_shapes_share_a_call_and_a_picture_is_encoded_once(
    model: ExactVisionModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    encode = VisionModel.encode

    def counting(self: VisionModel, images: Any) -> Any:
        calls.append(len(images))
        return encode(self, images)

    monkeypatch.setattr(VisionModel, "encode", counting)
    images = [random_image("llava", seed) for seed in range(3)]
    prompts = [VisionPrompt.build([i], image, [9, 9]) for i, image in enumerate(images)]
    prompts.append(VisionPrompt.build([77], images[0], [8, 8]))
    driver = model.driver(enable_prefix_caching=False)
    model.generate(driver, prompts, 3)
    model.generate(driver, prompts, 3)
    assert calls == [3]
    stats = driver.scheduler.stats()
    assert (stats.encoder_cache_queries, stats.encoder_cache_hits) == (8, 5)
    inputs = [entry for record in driver.scheduler.step_records for entry in record.encoder_inputs]
    assert [entry.mm_hash for entry in inputs] == [image.mm_hash for image in images]


def test_an_image_that_is_kept_keeps_no_other(model: ExactVisionModel) -> None:
    """Images of one call share its memory unless they are copied."""
    prompts = [VisionPrompt.build(random_image("llava", seed), [1]) for seed in range(3)]
    driver = model.driver(encoder_cache_size=48)
    model.generate(driver, prompts, 1)
    assert model.executor._worker is not None
    encoder = model.executor._worker.runner._encoder
    assert encoder is not None
    held = [output.untyped_storage().nbytes() for output in encoder._outputs.values()]
    assert held == [16 * 32 * 4] * 3


def test_the_same_picture_again_is_a_prefix_hit_and_another_is_none(
    model: ExactVisionModel,
) -> None:
    image, other = random_image("llava", 0), random_image("llava", 1)
    driver = model.driver()
    model.generate(driver, [VisionPrompt.build([1], image, [2, 3])], 1)
    same, different = model.generate(
        driver, [VisionPrompt.build([1], picture, [2, 3]) for picture in (image, other)], 1
    )
    assert (same.num_cached_tokens, different.num_cached_tokens) == (20, 0)
    assert driver.scheduler.stats().encoder_cache_queries == 2  # the hit needs no embedding


def spoiled(kind: str) -> TinyImage:
    """An image that cannot be right, as a broken client might send it."""
    good = random_image("llava", 7)
    pixels = good.arrays["pixel_values"]
    changed = {
        "nothing": {},
        "other name": {"pixels": pixels},
        "too much": good.arrays | {"image_grid_thw": np.ones((1, 3), np.int64)},
        "one channel": {"pixel_values": pixels[:, :1]},
        "other size": {"pixel_values": pixels[:, :, :8]},
        "flat": {"pixel_values": pixels.reshape(-1)},
        "empty": {"pixel_values": pixels[:0]},
        "two in one": {"pixel_values": np.concatenate([pixels, pixels])},
        "not numbers": {"pixel_values": np.full_like(pixels, np.nan)},
    }
    return TinyImage(changed[kind], 16) if kind in changed else TinyImage(good.arrays, 15)


BAD = ["nothing", "other name", "too much", "one channel", "other size", "flat", "empty"]


@pytest.mark.parametrize("kind", [*BAD, "two in one", "not numbers", "too few places"])
def test_a_bad_image_fails_alone(model: ExactVisionModel, kind: str) -> None:
    prompts = good_prompts(model)
    driver = model.driver(chunk=7)
    bad = VisionPrompt.build([1, 2], spoiled(kind), [3])
    driver.add("bad", bad.token_ids, greedy(3), mm_features=bad.features)
    results = model.generate(driver, prompts, NUM_TOKENS)
    model.check(prompts, results, NUM_TOKENS)
    assert driver.results["bad"].finish_reason is FinishReason.ERROR
    assert driver.results["bad"].token_ids == []
    stats = driver.scheduler.stats()
    assert stats.encoder_cache_used == 0
    assert model.executor.num_encoder_embeds == stats.encoder_cache_cached


def test_a_bad_image_does_not_spoil_its_hash(model: ExactVisionModel) -> None:
    """A request that brings the picture whole is served after one that did not."""
    prompt = good_prompts(model)[0]
    feature = prompt.features[0]
    broken = MultiModalFeatureSpec("image", feature.mm_hash, feature.position, {})
    driver = model.driver()
    driver.add("bad", prompt.token_ids, greedy(1), mm_features=[broken])
    driver.run()
    assert "where the model takes pixel_values" in str(driver.results["bad"].stop_reason)
    results = model.generate(driver, [prompt], NUM_TOKENS)
    model.check([prompt], results, NUM_TOKENS)
    assert results[0].num_cached_tokens == 0


def test_an_image_token_outside_the_vocabulary(tmp_path: Path) -> None:
    """As in some LLaVA checkpoints; penalties and sampling go on without it."""
    model = ExactVisionModel("llava", tmp_path, image_token_id=500)
    image = random_image("llava", 0)
    prompt = VisionPrompt.build([1, 2], image, [3, 4])
    prompt.token_ids = [500 if token == 280 else token for token in prompt.token_ids]
    driver = model.driver()
    for name, params in {
        "plain": greedy(4),
        "penalty": greedy(4, repetition_penalty=1.3),
        "logprobs": greedy(4, prompt_logprobs=1),
    }.items():
        driver.add(name, prompt.token_ids, params, mm_features=prompt.features)
    results = driver.run()
    assert len(results["plain"].token_ids) == len(results["penalty"].token_ids) == 4
    assert "500 is outside the vocabulary" in str(results["logprobs"].stop_reason)
    same = VisionPrompt.build([1, 2], image, [3, 4])
    assert model.generate(driver, [same], 4)[0].token_ids == results["plain"].token_ids
