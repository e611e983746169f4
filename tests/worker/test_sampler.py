"""Each sampling option against a plain re-implementation, alone and in mixed batches."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from kernelserve.sampling_params import SamplingParams
from kernelserve.worker.token_counts import TokenCounts
from tests.helpers.sampling import make_state, sample

VOCAB = 40


def random_logits(rows: int, vocab: int = VOCAB, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, vocab, generator=generator) * 2


def support(logits: torch.Tensor, params: dict[str, Any], draws: int = 3000) -> set[int]:
    """Return the ids that come out of many draws from one row."""
    states = [make_state(SamplingParams(seed=i, **params)) for i in range(draws)]
    return set(sample(logits.expand(draws, -1), states).token_ids)


def test_greedy_takes_the_most_probable() -> None:
    logits = random_logits(5)
    states = [make_state(SamplingParams(temperature=0)) for _ in range(5)]
    assert sample(logits, states).token_ids == logits.argmax(-1).tolist()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax(temperature: float) -> None:
    """Chi-square over 20,000 seeds, fixed, so this cannot fail by chance."""
    logits = random_logits(1, 20)
    draws = 20_000
    params = [SamplingParams(seed=i, temperature=temperature) for i in range(draws)]
    tokens = sample(logits.expand(draws, -1), [make_state(p) for p in params]).token_ids
    expected = (logits[0] / temperature).softmax(-1) * draws
    counts = torch.bincount(torch.tensor(tokens), minlength=20)
    common = expected > 5
    chi_square = float(((counts - expected) ** 2 / expected)[common].sum())
    freedom = int(common.sum()) - 1
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom)


def test_draws_of_one_seed_follow_the_softmax_over_positions() -> None:
    logits = random_logits(1, 10)
    draws = 10_000
    state = make_state(SamplingParams(seed=1))
    tokens = sample(logits.expand(draws, -1), [state] * draws, positions=range(draws)).token_ids
    expected = logits[0].softmax(-1) * draws
    counts = torch.bincount(torch.tensor(tokens), minlength=10)
    assert float(((counts - expected) ** 2 / expected).sum()) < 9 + 4 * math.sqrt(18)


def test_top_k_keeps_k() -> None:
    logits = random_logits(1)
    assert support(logits, {"top_k": 3, "temperature": 2}) == set(
        logits[0].topk(3).indices.tolist()
    )
    assert support(logits, {"top_k": 1}) == {int(logits.argmax())}


def test_top_k_keeps_ties_and_is_clamped_to_the_vocabulary() -> None:
    logits = torch.tensor([[2.0, 1.0, 1.0, 1.0, -9.0]])
    assert support(logits, {"top_k": 2}) == {0, 1, 2, 3}
    even = torch.zeros(1, 5)
    assert support(even, {"top_k": 1000}) == {0, 1, 2, 3, 4}


def test_top_p_keeps_the_nucleus() -> None:
    probabilities = torch.tensor([[0.05, 0.5, 0.15, 0.3]])
    assert support(probabilities.log(), {"top_p": 0.4}) == {1}
    assert support(probabilities.log(), {"top_p": 0.6}) == {1, 3}
    assert support(probabilities.log(), {"top_p": 0.9}) == {1, 2, 3}


def test_top_p_keeps_at_least_one() -> None:
    logits = random_logits(1)
    assert support(logits, {"top_p": 1e-6}) == {int(logits.argmax())}


def test_top_p_beyond_the_best_few_sorts_everything() -> None:
    vocab = 2000
    logits = torch.zeros(1, vocab)
    logits[0, : vocab // 2] = 0.001  # a nucleus of 1,000 almost equal tokens
    kept = support(logits, {"top_p": 0.5}, draws=4000)
    assert max(kept) < vocab // 2
    assert len(kept) > 900


def test_top_p_is_taken_after_top_k() -> None:
    probabilities = torch.tensor([[0.4, 0.3, 0.2, 0.1]])
    # of the best two, the first holds 0.57
    assert support(probabilities.log(), {"top_k": 2, "top_p": 0.5}) == {0}
    assert support(probabilities.log(), {"top_p": 0.5}) == {0, 1}


def test_min_p_is_relative_to_the_best_after_temperature() -> None:
    probabilities = torch.tensor([[0.6, 0.3, 0.07, 0.03]])
    assert support(probabilities.log(), {"min_p": 0.4}) == {0, 1}
    # the temperature of 2 takes square roots: 1, 0.71, 0.34, 0.22
    assert support(probabilities.log(), {"min_p": 0.4, "temperature": 2}) == {0, 1}
    assert support(probabilities.log(), {"min_p": 0.3, "temperature": 2}) == {0, 1, 2}
    assert support(probabilities.log(), {"min_p": 1.0}) == {0}


def plain_penalties(
    logits: list[float], prompt: list[int], output: list[int], params: SamplingParams
) -> list[float]:
    result = []
    for token, value in enumerate(logits):
        if token in prompt or token in output:
            factor = params.repetition_penalty
            value = value / factor if value > 0 else value * factor
        value -= params.frequency_penalty * output.count(token)
        value -= params.presence_penalty * (token in output)
        result.append(value)
    return result


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.7},
        {"frequency_penalty": 1.1},
        {"presence_penalty": 1.3},
        {"repetition_penalty": 0.6, "frequency_penalty": -0.4, "presence_penalty": -1.0},
    ],
)
def test_penalties(options: dict[str, float]) -> None:
    prompt, output = [3, 4, 4, 5], [5, 6, 6, 6, 7]
    params = SamplingParams(temperature=0, logprobs=-1, **options)  # type: ignore[arg-type]
    logits = random_logits(1)
    result = sample(
        logits, [make_state(params, prompt=prompt, output=output)], mode="processed_logprobs"
    )
    ids = result.logprobs[0].token_ids.tolist()[0][1:]
    values = result.logprobs[0].logprobs.tolist()[0][1:]
    expected = torch.tensor(plain_penalties(logits[0].tolist(), prompt, output, params))
    found = torch.tensor([v for _, v in sorted(zip(ids, values, strict=True))])
    torch.testing.assert_close(found, expected.log_softmax(-1), atol=1e-5, rtol=0)


def test_penalty_state_is_built_only_when_asked_for() -> None:
    plain = make_state(SamplingParams(temperature=0))
    penalised = make_state(SamplingParams(temperature=0, presence_penalty=1))
    sample(random_logits(2), [plain, penalised])
    assert plain.token_counts is None
    assert penalised.token_counts is not None


def test_token_counts_follow_a_growing_output() -> None:
    output = [1, 2]
    counts = TokenCounts([0, 0, 99], 5, torch.device("cpu"))
    counts.update(output)
    output += [2, 2, 99, -1]
    counts.update(output)
    counts.update(output)
    assert counts.in_output.tolist() == [0, 1, 3, 0, 0]
    assert counts.in_prompt.tolist() == [True, False, False, False, False]


def test_allowed_token_ids() -> None:
    assert support(random_logits(1), {"allowed_token_ids": [7, 9], "temperature": 2}) == {7, 9}


def test_logit_bias_is_added() -> None:
    logits = torch.zeros(1, VOCAB)
    assert support(logits, {"logit_bias": {5: 50.0}}) == {5}
    assert 5 not in support(logits, {"logit_bias": {5: -50.0}})


def test_trap_46_a_large_bias_does_not_revive_a_forbidden_token() -> None:
    logits = torch.zeros(1, VOCAB)
    params = {"logit_bias": {5: 100.0}, "allowed_token_ids": [7, 9]}
    assert support(logits, params) == {7, 9}
    state = make_state(
        SamplingParams(temperature=0, logit_bias={5: 100.0}, bad_words_token_ids=[[5]])
    )
    assert sample(logits, [state]).token_ids != [5]
    state = make_state(
        SamplingParams(temperature=0, logit_bias={5: 100}, min_tokens=1, all_stop_token_ids=[5])
    )
    assert sample(logits, [state]).token_ids != [5]


def test_trap_33_min_tokens_masks_every_stop_id_until_reached() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 2], logits[0, 3] = 9.0, 8.0
    params = SamplingParams(
        temperature=0, min_tokens=2, max_tokens=9, ignore_eos=True, all_stop_token_ids=[2, 3]
    )
    for output, expected in (([], {0}), ([7], {0}), ([7, 7], {2}), ([7, 7, 7], {2})):
        tokens = sample(logits, [make_state(params, output=output)]).token_ids
        assert set(tokens) <= expected


def test_trap_33_a_mask_built_early_ends_in_time() -> None:
    from kernelserve.worker.sampler import Sampler
    from kernelserve.worker.sampling_metadata import SamplingMetadata

    logits = torch.zeros(1, VOCAB)
    logits[0, 2] = 9.0
    state = make_state(
        SamplingParams(temperature=0, min_tokens=1, max_tokens=9, all_stop_token_ids=[2])
    )
    metadata = SamplingMetadata.build([state], VOCAB, torch.device("cpu"))
    assert Sampler()(logits.clone(), torch.tensor([1]), metadata).token_ids != [2]
    state.output_token_ids.append(0)
    assert Sampler()(logits.clone(), torch.tensor([2]), metadata).token_ids == [2]


def test_trap_45_bad_words_block_the_last_token_after_the_others() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 5] = 9.0
    params = SamplingParams(temperature=0, bad_words_token_ids=[[3, 4, 5], [8]])

    def token_after(output: list[int], prompt: list[int]) -> int:
        return sample(logits, [make_state(params, prompt=prompt, output=output)]).token_ids[0]

    assert token_after([1, 3, 4], [0]) != 5
    assert token_after([3, 1, 4], [0]) == 5
    assert token_after([4], [3]) == 5, "the prefix is looked for in the output only"
    assert token_after([], [3, 4]) == 5
    logits[0, 8] = 10.0
    assert token_after([], [0]) == 5, "a word of one token is always forbidden"


def test_trap_44_greedy_ignores_the_other_options_also_in_a_mixed_batch() -> None:
    logits = random_logits(4)
    greedy = SamplingParams(temperature=1e-6, top_p=0.1, top_k=1, min_p=0.9)
    drawn = SamplingParams(seed=3, temperature=2, top_k=20)
    states = [make_state(p) for p in (greedy, drawn, greedy, drawn)]
    tokens = sample(logits, states).token_ids
    best = logits.argmax(-1).tolist()
    assert [tokens[0], tokens[2]] == [best[0], best[2]]
    assert tokens[1] == sample(logits[1:2], [states[1]]).token_ids[0]


MANY_OPTIONS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"seed": 1},
    {"seed": 2, "top_k": 5},
    {"temperature": 0, "repetition_penalty": 2.0},
    {"seed": 3, "top_p": 0.7, "presence_penalty": 1.0},
    {"seed": 4, "min_p": 0.2, "logit_bias": {3: 2.0}},
    {"temperature": 0, "allowed_token_ids": [1, 2]},
    {"seed": 5, "bad_words_token_ids": [[4]], "temperature": 0.3},
    {"seed": 6, "min_tokens": 3, "all_stop_token_ids": [0, 1], "logprobs": 2},
]


def test_trap_38_a_row_is_the_same_alone_and_in_any_batch() -> None:
    """Batch size, order and neighbours have no influence on a row."""
    logits = random_logits(len(MANY_OPTIONS))
    states = [make_state(SamplingParams(**o), prompt=[3, 4], output=[5]) for o in MANY_OPTIONS]
    alone = [sample(logits[i : i + 1], [state]).token_ids[0] for i, state in enumerate(states)]
    generator = torch.Generator().manual_seed(0)
    for size in (2, 5, len(states), len(states)):
        rows = torch.randperm(len(states), generator=generator)[:size].tolist()
        together = sample(logits[rows], [states[i] for i in rows]).token_ids
        assert together == [alone[i] for i in rows]


def test_trap_39_children_with_consecutive_seeds_differ() -> None:
    logits = torch.zeros(3, 1000)
    states = [make_state(SamplingParams(seed=42 + i)) for i in range(3)]
    tokens = sample(logits, states).token_ids
    assert len(set(tokens)) == 3
    assert tokens == sample(logits, states).token_ids


def test_unseeded_requests_differ() -> None:
    logits = torch.zeros(3, 1000)
    states = [make_state(SamplingParams(), req_id=name) for name in "abc"]
    assert len(set(sample(logits, states).token_ids)) == 3


def test_t20_ids_outside_the_vocabulary_touch_nobody() -> None:
    logits = random_logits(2)
    for options in (
        {"logit_bias": {VOCAB + 5: 50.0, -1: 50.0}},
        {"min_tokens": 1, "all_stop_token_ids": [VOCAB + 5, -1]},
        {"bad_words_token_ids": [[VOCAB + 5], [-1]]},
    ):
        wild = make_state(SamplingParams(temperature=0, **options))
        calm = make_state(SamplingParams(temperature=0))
        assert sample(logits, [wild, calm]).token_ids == logits.argmax(-1).tolist()
        assert sample(logits, [calm, wild]).token_ids == logits.argmax(-1).tolist()


def test_t22_penalties_of_one_request_do_not_touch_another() -> None:
    a = SamplingParams(temperature=0, repetition_penalty=2.0, max_tokens=5)
    b = SamplingParams(top_k=1, seed=99, max_tokens=4)
    for order in ((a, b), (b, a)):
        logits = random_logits(2)
        states = [make_state(p, prompt=[int(logits.argmax()) % VOCAB]) for p in order]
        together = sample(logits, states).token_ids
        alone = [sample(logits[i : i + 1], [s]).token_ids[0] for i, s in enumerate(states)]
        assert together == alone


def test_t27_an_empty_mask_is_an_error_of_that_request_only() -> None:
    logits = random_logits(3)
    empty = SamplingParams(seed=1, allowed_token_ids=[3, 4], bad_words_token_ids=[[3], [4]])
    states = [
        make_state(SamplingParams(temperature=0)),
        make_state(empty),
        make_state(SamplingParams(temperature=0, allowed_token_ids=[VOCAB + 1])),
    ]
    result = sample(logits, states)
    assert set(result.errors) == {1, 2}
    assert "allowed_token_ids" in result.errors[1]
    assert result.token_ids[0] == int(logits[0].argmax())


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0, 1])
def test_logits_that_are_not_finite_are_an_error_of_that_request_only(
    value: float, temperature: float
) -> None:
    logits = random_logits(3)
    logits[1, 5] = value
    states = [make_state(SamplingParams(temperature=temperature, seed=1, logprobs=1))] * 3
    result = sample(logits, states)
    assert list(result.errors) == [1]
    assert set(result.logprobs) == {0, 2}
    alone = sample(logits[:1], states[:1])
    assert result.token_ids[0] == alone.token_ids[0]


def test_half_precision_logits_are_sampled_in_float32() -> None:
    logits = random_logits(1).bfloat16()
    state = make_state(SamplingParams(temperature=0, logprobs=1))
    result = sample(logits, [state])
    expected = logits.float().log_softmax(-1).amax()
    assert math.isclose(result.logprobs[0].logprobs.tolist()[0][0], float(expected), abs_tol=1e-6)
