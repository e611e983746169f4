"""Greedy answers about images equal `model.generate`, whatever else happens in the engine."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelserve.protocol import FinishReason
from tests.helpers.engine_driver import greedy
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


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_greedy_equals_generate_in_shuffled_batches(models: Any, arch: str) -> None:
    model = models(arch)
    different = prompts_of(model)
    rng = random.Random(arch)
    for size in (1, 3, 12):
        prompts = rng.choices(different, k=size)
        driver = model.driver(enable_prefix_caching=False, max_num_batched_tokens=70)
        model.check(prompts, model.generate(driver, prompts, NUM_TOKENS), NUM_TOKENS)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_budget_that_is_smaller_than_an_image(models: Any, arch: str) -> None:
    model = models(arch)
    prompts = prompts_of(model)
    driver = model.driver(max_num_batched_tokens=5, max_num_seqs=3)
    model.check(prompts, model.generate(driver, prompts, NUM_TOKENS), NUM_TOKENS)


def prompts_that_part_behind_an_image(model: ExactVisionModel) -> list[VisionPrompt]:
    """Two prompts that differ from the second token behind their image on: the hit ends inside it."""
    image = random_image(model.arch, 0)
    start = random_text(random.Random(1), 4 + (4 - image.num_embeds) % 4)  # image ends at 4 k + 1
    assert (len(start) + 1 + image.num_embeds) % 4 == 1

    def make(rng: random.Random) -> VisionPrompt:
        return VisionPrompt.build(start, image, random_text(rng, 5))

    return [model.clear_prompt(make, NUM_TOKENS, seed) for seed in (10, 11)]


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_prefix_hit_ends_inside_an_image(models: Any, arch: str, forgotten: bool) -> None:
    """Also if the embeddings of the rest are gone: then the image is encoded again."""
    model = models(arch)
    first, second = prompts_that_part_behind_an_image(model)
    other = VisionPrompt.build(random_image(arch, 5, 2), [7, 8])
    room = max(first.images[0].num_embeds, other.images[0].num_embeds)
    driver = model.driver(encoder_cache_size=room)
    model.check([first], model.generate(driver, [first], NUM_TOKENS), NUM_TOKENS)
    if forgotten:
        model.generate(driver, [other], 1)
    results = model.generate(driver, [second], NUM_TOKENS)
    model.check([second], results, NUM_TOKENS)
    position = first.features[0].position
    end = position.offset + position.length
    assert position.offset < results[0].num_cached_tokens < end
    last = [record for record in driver.scheduler.step_records if record.new_req_ids][-1]
    assert (len(last.encoder_inputs), len(last.encoder_hits)) == ((1, 0) if forgotten else (0, 1))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_each_request_preempted_at_least_twice(models: Any, arch: str) -> None:
    model = models(arch)
    prompts = prompts_of(model)[:2]
    longest = max(len(prompt.token_ids) for prompt in prompts_of(model)) + NUM_TOKENS
    urgent = prompts_of(model)[4]
    num_blocks = 2 + -(-longest // 4)
    driver = model.driver(num_blocks=num_blocks, policy="priority", chunk=6, encoder_cache_size=120)
    for i, prompt in enumerate(prompts):
        driver.add(
            f"slow-{i}",
            prompt.token_ids,
            greedy(NUM_TOKENS),
            priority=5,
            mm_features=prompt.features,
        )
    for round_ in range(3):
        for _ in range(4):
            driver.step()
        names = [f"urgent-{round_}-{i}" for i in range(3)]
        for name in names:
            driver.add(name, urgent.token_ids, greedy(NUM_TOKENS), mm_features=urgent.features)
        while any(driver.results[name].finish_reason is None for name in names):
            driver.step()
        model.check([urgent] * 3, [driver.results[name] for name in names], NUM_TOKENS)
    results = driver.run()
    model.check(prompts, [results[f"slow-{i}"] for i in range(len(prompts))], NUM_TOKENS)
    assert sum(driver.requests[f"slow-{i}"].num_preemptions for i in range(len(prompts))) >= 3


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_an_encoder_cache_that_holds_one_image(models: Any, arch: str) -> None:
    model = models(arch)
    prompts = prompts_of(model)
    room = max(image.num_embeds for prompt in prompts for image in prompt.images)
    driver = model.driver(encoder_cache_size=room, chunk=9)
    model.check(prompts, model.generate(driver, prompts, NUM_TOKENS), NUM_TOKENS)
    stats = driver.scheduler.stats()
    assert stats.encoder_cache_used == 0
    assert 0 < stats.encoder_cache_cached <= room == stats.encoder_cache_size
    assert model.executor.num_encoder_embeds == stats.encoder_cache_cached


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_neighbours_aborted_inside_their_images(models: Any, arch: str) -> None:
    model = models(arch)
    prompts = prompts_of(model)
    driver = model.driver(chunk=3, encoder_cache_size=150)
    for i, prompt in enumerate(prompts):
        driver.add(f"r{i}", prompt.token_ids, greedy(NUM_TOKENS), mm_features=prompt.features)
    for victim in (2, 0):
        driver.step()
        driver.step()
        driver.abort([f"r{victim}"])
    results = driver.run()
    kept = (1, 3, 4)
    model.check([prompts[i] for i in kept], [results[f"r{i}"] for i in kept], NUM_TOKENS)
    assert driver.scheduler.stats().encoder_cache_used == 0


def test_an_image_whose_tokens_see_each_other_lies_in_several_pieces(
    models: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gemma 3, with the rows that attention takes at once cut to fewer than an image has."""
    monkeypatch.setattr("kernelserve.attention.step_plan._MAX_PIECE_ROWS", 3)
    model = models("gemma3")
    prompts = prompts_of(model)
    model.check(prompts, model.generate(model.driver(), prompts, NUM_TOKENS), NUM_TOKENS)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_logprobs_of_each_position_equal_a_plain_forward_pass(models: Any, arch: str) -> None:
    """Also those behind the first image, at every position inside of it, and in several chunks."""
    model = models(arch)
    driver = model.driver(chunk=7)
    for number, prompt in enumerate(prompts_of(model)):
        params = greedy(1, prompt_logprobs=2)
        driver.add(f"r{number}", prompt.token_ids, params, mm_features=prompt.features)
    results = driver.run()
    for number, prompt in enumerate(prompts_of(model)):
        lists = results[f"r{number}"].prompt_logprobs
        assert lists is not None
        expected = model.plain_logprobs(prompt)
        for position, (ids, values) in enumerate(
            zip(lists.token_ids.tolist(), lists.logprobs.tolist(), strict=True)
        ):
            assert values == pytest.approx(expected[position][ids].tolist(), abs=2e-4)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_architecture_runs_in_bfloat16(tmp_path: Path, arch: str) -> None:
    model = ExactVisionModel(arch, tmp_path, dtype="bfloat16")
    image = random_image(arch, 1, 1)
    prompts = [VisionPrompt.build([1, 2], image, [3]), VisionPrompt.build([1, 2, 3])]
    results = model.generate(model.driver(chunk=5), prompts, 4)
    assert [len(result.token_ids) for result in results] == [4, 4]
