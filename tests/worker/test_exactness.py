"""Greedy answers equal `model.generate`, whatever else happens in the engine."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelserve.protocol import FinishReason, LogprobsLists
from kernelserve.sampling_params import SamplingParams
from tests.helpers.engine_driver import greedy
from tests.helpers.exact import ExactModel
from tests.helpers.tiny_models import make_tiny_model

ARCHITECTURES = [
    "llama",
    "qwen2",
    "qwen3",
    "mistral",
    "gemma2",
    "gemma3_text",
    "phi3",
    "olmo2",
    "granite",
    "smollm3",
    "gpt_neox",
    "mixtral",
    "qwen3_moe",
]
# windows are 8 tokens, blocks 4
LENGTHS = (1, 3, 4, 5, 8, 9, 16, 17, 23, 31, 40, 50)
NUM_TOKENS = 14


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that makes the ExactModel of an architecture once."""
    torch.set_num_threads(1)

    @functools.cache
    def make(arch: str) -> ExactModel:
        folder: Path = tmp_path_factory.mktemp(arch)
        return ExactModel(make_tiny_model(arch, folder))

    return make


@pytest.mark.parametrize("chunk", [1, 7, 16, 64])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_greedy_equals_generate_for_any_chunk_size(models: Any, arch: str, chunk: int) -> None:
    model = models(arch)
    prompts = model.clear_prompts(LENGTHS, NUM_TOKENS)
    results = model.driver(chunk=chunk).generate(prompts, greedy(NUM_TOKENS))
    model.check(prompts, results, NUM_TOKENS)
    assert all(result.finish_reason == FinishReason.LENGTH for result in results)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_greedy_equals_generate_in_shuffled_batches(models: Any, arch: str) -> None:
    model = models(arch)
    rng = random.Random(arch)
    different = model.clear_prompts(LENGTHS, NUM_TOKENS)
    for size in (1, 2, 5, 32):
        prompts = rng.choices(different, k=size)
        driver = model.driver(enable_prefix_caching=False, max_num_batched_tokens=100)
        model.check(prompts, driver.generate(prompts, greedy(NUM_TOKENS)), NUM_TOKENS)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_logprobs_equal_a_plain_forward_pass(models: Any, arch: str) -> None:
    model = models(arch)
    params = greedy(NUM_TOKENS, logprobs=3, prompt_logprobs=2)
    prompts = model.clear_prompts(LENGTHS, NUM_TOKENS)
    results = model.driver(chunk=7).generate(prompts, params)
    for prompt, result in zip(prompts, results, strict=True):
        tokens = prompt + result.token_ids
        expected = model.plain_logprobs(tokens)
        rows = [(lists, 0, len(prompt) - 1 + i) for i, lists in enumerate(result.logprobs)]
        rows += [(result.prompt_logprobs, i, i) for i in range(len(prompt) - 1)]
        assert len(rows) == len(tokens) - 1
        for lists, row, position in rows:
            check_logprobs(lists, row, tokens[position + 1], expected[position])


def check_logprobs(lists: LogprobsLists, row: int, token: int, expected: torch.Tensor) -> None:
    ids = lists.token_ids.tolist()[row]
    values = lists.logprobs.tolist()[row]
    assert ids[0] == token
    assert values == pytest.approx(expected[ids].tolist(), abs=1e-4)
    assert values[1:] == pytest.approx(expected.topk(len(ids) - 1).values.tolist(), abs=1e-4)
    rank = lists.ranks.tolist()[row]
    assert int((expected > expected[token] + 1e-4).sum()) < rank
    assert rank <= int((expected >= expected[token] - 1e-4).sum())


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_prefix_cache_on_off_and_half_evicted(models: Any, arch: str) -> None:
    model = models(arch)
    shared = list(range(100, 124))
    prompts = model.clear_prompts([1, 2, 5, 9], NUM_TOKENS, prefix=shared)
    others = model.clear_prompts([23, 31], NUM_TOKENS, seed=1)
    off = model.driver(enable_prefix_caching=False)
    model.check(prompts, off.generate(prompts, greedy(NUM_TOKENS)), NUM_TOKENS)

    on = model.driver()
    for _ in range(2):
        results = on.generate(prompts, greedy(NUM_TOKENS))
        model.check(prompts, results, NUM_TOKENS)
    assert all(result.num_cached_tokens >= 24 for result in results)

    # of the 15 blocks the first takes 12 and caches 11, of which the second pushes out 6
    tight = model.driver(num_blocks=16)
    cached = []
    for prompt in (prompts[3], others[0], prompts[3], others[1], prompts[3], prompts[3]):
        results = tight.generate([prompt], greedy(NUM_TOKENS))
        model.check([prompt], results, NUM_TOKENS)
        cached.append(results[0].num_cached_tokens)
    assert 0 < cached[2] < 32
    assert cached[5] == 32


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_each_request_preempted_at_least_twice(models: Any, arch: str) -> None:
    """Urgent requests that need more than the whole pool push out all others in each round."""
    model = models(arch)
    prompts = model.clear_prompts([3, 8, 16, 23], 40)
    short = model.clear_prompts([1], NUM_TOKENS)[0]
    driver = model.driver(num_blocks=20, policy="priority", max_num_batched_tokens=64)
    for i, prompt in enumerate(prompts):
        driver.add(f"slow-{i}", prompt, greedy(40, logprobs=0), priority=5)
    for round_ in range(3):
        for _ in range(4):
            driver.step()
        urgent = [f"urgent-{round_}-{i}" for i in range(7)]
        for name in urgent:
            driver.add(name, short, greedy(NUM_TOKENS))
        while any(driver.results[name].finish_reason is None for name in urgent):
            driver.step()
        model.check([short] * 7, [driver.results[name] for name in urgent], NUM_TOKENS)
    results = driver.run()
    slow = [results[f"slow-{i}"] for i in range(len(prompts))]
    model.check(prompts, slow, 40)
    assert all(len(result.logprobs) == 40 for result in slow)
    preemptions = [driver.requests[f"slow-{i}"].num_preemptions for i in range(len(prompts))]
    assert min(preemptions) >= 2


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_neighbours_aborted_in_mid_flight(models: Any, arch: str) -> None:
    model = models(arch)
    prompts = model.clear_prompts(LENGTHS, NUM_TOKENS)
    driver = model.driver(chunk=7, max_num_batched_tokens=64)
    for i, prompt in enumerate(prompts):
        driver.add(f"r{i}", prompt, greedy(NUM_TOKENS))
    for victim in (11, 0, 5, 2, 9, 7):  # the first while its prompt is incomplete
        driver.step()
        driver.abort([f"r{victim}"])
    results = driver.run()
    kept = [i for i in range(len(prompts)) if i not in (11, 0, 5, 2, 9, 7)]
    model.check([prompts[i] for i in kept], [results[f"r{i}"] for i in kept], NUM_TOKENS)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_t25_seeded_children_equal_their_solo_runs(models: Any, arch: str) -> None:
    """n = 3 with a seed arrives as three requests with consecutive seeds."""
    model = models(arch)
    prompt, other = list(range(17)), list(range(50, 58))
    params = [
        SamplingParams(seed=42 + i, temperature=0.9, top_p=0.95, max_tokens=NUM_TOKENS)
        for i in range(3)
    ]
    solo = [model.driver().generate([prompt], p)[0].token_ids for p in params]
    assert len({tuple(tokens) for tokens in solo}) == 3
    for options in ({}, {"chunk": 7}, {"num_blocks": 16}, {"enable_prefix_caching": False}):
        driver = model.driver(**options)
        driver.add("other", other, SamplingParams(max_tokens=5))
        for i in (2, 0, 1):
            driver.add(f"child-{i}", prompt, params[i])
        results = driver.run()
        assert [results[f"child-{i}"].token_ids for i in range(3)] == solo
