"""The runner on a tiny model under the real scheduler: sampling, logprobs, errors of one request."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from kernelserve.core.scheduler_output import CachedRequestData, SchedulerOutput
from kernelserve.protocol import FinishReason
from kernelserve.sampling_params import SamplingParams
from tests.helpers.engine_driver import Result, greedy
from tests.helpers.exact import ExactModel
from tests.helpers.tiny_models import VOCAB_SIZE, make_tiny_model

PROMPT = list(range(40, 60))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ExactModel:
    torch.set_num_threads(1)
    return ExactModel(make_tiny_model("llama", tmp_path_factory.mktemp("llama")))


def solo(model: ExactModel, prompt: list[int], params: SamplingParams) -> list[int]:
    return model.driver().generate([prompt], params)[0].token_ids


def empty_plan() -> SchedulerOutput:
    return SchedulerOutput([], CachedRequestData(), {}, 0, set(), set())


def test_the_two_phases_alternate(model: ExactModel) -> None:
    model.executor.execute_model(empty_plan())
    with pytest.raises(AssertionError, match="before sample_tokens"):
        model.executor.execute_model(empty_plan())
    assert model.executor.sample_tokens().req_ids == []
    with pytest.raises(AssertionError, match="without execute_model"):
        model.executor.sample_tokens()


def test_trap_16_the_runner_forgets_what_has_ended(model: ExactModel) -> None:
    driver = model.driver()
    driver.generate([PROMPT], greedy(2))
    assert model.executor.num_known_requests == 0


def test_trap_16_an_id_may_be_used_again_at_once(model: ExactModel) -> None:
    driver = model.driver()
    driver.add("a", PROMPT, greedy(5))
    driver.step()
    driver.abort(["a"])
    driver.add("a", PROMPT[:7], greedy(5))
    assert driver.run()["a"].token_ids == model.expected(PROMPT[:7], 5)


def test_more_requests_than_expected(model: ExactModel) -> None:
    """max_num_seqs may be raised while the engine runs: the batch grows."""
    prompts = [[i, i + 1, i + 2] for i in range(140)]
    driver = model.driver(max_num_seqs=140)
    results = driver.generate(prompts, greedy(2))
    assert driver.num_steps < 8
    model.check(prompts[:5] + prompts[-5:], results[:5] + results[-5:], 2)


def test_trap_35_stop_token_stays_in_ids_and_logprobs(model: ExactModel) -> None:
    third = model.expected(PROMPT, 3)
    params = greedy(9, stop_token_ids=[third[2]], logprobs=0)
    result = model.driver().generate([PROMPT], params)[0]
    assert result.token_ids == third[: third.index(third[2]) + 1]
    assert len(result.logprobs) == len(result.token_ids)
    assert result.finish_reason == FinishReason.STOP


def test_trap_33_min_tokens_delays_the_end_token(model: ExactModel) -> None:
    first = model.expected(PROMPT, 1)[0]
    params = greedy(9, min_tokens=4, eos_token_id=first, all_stop_token_ids=[first])
    result = model.driver().generate([PROMPT], params)[0]
    assert first not in result.token_ids[:4]
    assert len(result.token_ids) >= 4


def test_trap_38_a_seeded_answer_does_not_depend_on_chunks(model: ExactModel) -> None:
    params = SamplingParams(seed=5, max_tokens=8)
    expected = solo(model, PROMPT, params)
    for chunk in (1, 3, 7, 19):
        assert model.driver(chunk=chunk).generate([PROMPT], params)[0].token_ids == expected


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(seed=5, max_tokens=24),
        greedy(24, repetition_penalty=1.8, presence_penalty=0.5),
        greedy(24, min_tokens=20, all_stop_token_ids=list(range(0, 288, 2))),
        greedy(24, bad_words_token_ids=[[1], [2, 3]]),
    ],
)
def test_trap_10_preemption_keeps_noise_penalties_and_min_tokens(
    model: ExactModel, params: SamplingParams
) -> None:
    expected = solo(model, PROMPT, params)
    driver = model.driver(chunk=8)
    driver.add("a", PROMPT, params)
    for _ in range(6):
        for _ in range(6):
            driver.step()
        driver.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert driver.run()["a"].token_ids == expected
    assert driver.requests["a"].num_preemptions >= 2


def test_t20_a_prompt_id_outside_the_vocabulary_harms_only_its_sender(model: ExactModel) -> None:
    for wrong in (VOCAB_SIZE, VOCAB_SIZE + 5, -1, 2**40):
        driver = model.driver(chunk=8)
        driver.add("wrong", [1, 2, 3, wrong], greedy(4, prompt_logprobs=1))
        driver.add("right", PROMPT, greedy(4))
        results = driver.run()
        assert results["wrong"].finish_reason == FinishReason.ERROR
        assert str(wrong) in str(results["wrong"].stop_reason)
        assert results["right"].token_ids == model.expected(PROMPT, 4)


@pytest.mark.parametrize("swap", [False, True])
def test_t22_penalties_and_a_seeded_neighbour(model: ExactModel, swap: bool) -> None:
    params = {
        "a": greedy(5, repetition_penalty=2.0),
        "b": SamplingParams(top_k=1, seed=99, max_tokens=4),
    }
    expected = {name: solo(model, PROMPT, p) for name, p in params.items()}
    driver = model.driver()
    for i, name in enumerate(sorted(params, reverse=swap)):
        driver.add(f"early-{i}", PROMPT[:3], greedy(i + 1))  # leaves, so that rows are reused
        driver.add(name, PROMPT, params[name])
        driver.step()
    driver.add("late", PROMPT[:5], greedy(3, frequency_penalty=1.0))
    results = driver.run()
    assert {name: results[name].token_ids for name in params} == expected


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("neighbour_seed", [None, 7])
@pytest.mark.parametrize("neighbour_tokens", [2, 12])
def test_t24_a_seeded_request_never_changes(
    model: ExactModel, swap: bool, neighbour_seed: int | None, neighbour_tokens: int
) -> None:
    seeded = SamplingParams(seed=42, max_tokens=10)
    expected = solo(model, PROMPT, seeded)
    other = SamplingParams(seed=neighbour_seed, max_tokens=neighbour_tokens)
    pairs = [("seeded", seeded), ("other", other)]
    for _ in range(4):
        driver = model.driver()
        for name, params in reversed(pairs) if swap else pairs:
            driver.add(name, PROMPT, params)
        assert driver.run()["seeded"].token_ids == expected


def test_t27_an_empty_intersection_ends_with_an_error(model: ExactModel) -> None:
    driver = model.driver()
    driver.add("empty", PROMPT, greedy(4, allowed_token_ids=[3], bad_words_token_ids=[[3]]))
    driver.add("full", PROMPT, greedy(4, allowed_token_ids=[3, 4], bad_words_token_ids=[[3]]))
    results = driver.run()
    assert results["empty"].finish_reason == FinishReason.ERROR
    assert "no token is left" in str(results["empty"].stop_reason)
    assert results["full"].token_ids == [4, 4, 4, 4]


def test_nan_weights_end_requests_with_an_error(tmp_path_factory: pytest.TempPathFactory) -> None:
    broken = ExactModel(make_tiny_model("llama", tmp_path_factory.mktemp("nan")), fuse_layers=False)
    worker = broken.executor._worker
    assert worker is not None
    worker._model.module.get_output_embeddings().weight.data[5] = math.nan
    result = broken.driver().generate([PROMPT], greedy(4))[0]
    assert result.finish_reason == FinishReason.ERROR
    assert "not finite" in str(result.stop_reason)


def prompt_rows(result: Result) -> tuple[Any, Any]:
    assert result.prompt_logprobs is not None
    return result.prompt_logprobs.token_ids.tolist(), result.prompt_logprobs.logprobs.tolist()


@pytest.mark.parametrize("chunk", [0, 5, 30])
def test_t28_prompt_logprobs_with_the_prefix_cache(
    tmp_path_factory: pytest.TempPathFactory, chunk: int
) -> None:
    folder = make_tiny_model("llama", tmp_path_factory.mktemp("llama"))
    model = ExactModel(folder, block_size=32)
    tokens = [(7 * i) % 250 for i in range(33)]
    driver = model.driver(chunk=chunk)
    for prompt in (tokens[:31], tokens, tokens[:31], tokens, tokens[:32], tokens[:32]):
        result = driver.generate([prompt], greedy(2, prompt_logprobs=3))[0]
        ids, values = prompt_rows(result)
        expected = model.plain_logprobs(prompt)
        assert len(ids) == len(prompt) - 1
        for position, row in enumerate(ids):
            assert row[0] == prompt[position + 1]
            assert values[position] == pytest.approx(expected[position][row].tolist(), abs=1e-4)
        assert result.num_cached_tokens == 0
        assert result.token_ids == model.expected(prompt, 2)
    # they do not read the cache, but what they computed is there for others
    assert driver.generate([tokens], greedy(2))[0].num_cached_tokens == 32


def test_trap_43_preemption_in_the_middle_of_a_prompt_starts_anew(model: ExactModel) -> None:
    expected = prompt_rows(model.driver().generate([PROMPT], greedy(2, prompt_logprobs=2))[0])
    driver = model.driver(chunk=6)
    driver.add("a", PROMPT, greedy(6, prompt_logprobs=2))
    for _ in range(2):
        driver.step()
        driver.step()
        driver.scheduler.reset_prefix_cache(reset_running_requests=True)
    for _ in range(6):
        driver.step()
    driver.scheduler.reset_prefix_cache(reset_running_requests=True)  # and once after its end
    ids, values = prompt_rows(driver.run()["a"])
    assert ids == expected[0]
    assert values == [pytest.approx(row, abs=1e-4) for row in expected[1]]
    assert driver.results["a"].token_ids == model.expected(PROMPT, 6)
