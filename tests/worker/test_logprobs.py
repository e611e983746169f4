"""Log-probabilities: values, ranks, trimming, and what they are of."""

from __future__ import annotations

import math

import pytest
import torch

from kernelserve.sampling_params import SamplingParams
from kernelserve.worker.logprobs import gather_logprobs, to_wire
from kernelserve.worker.prompt_logprobs import PromptLogprobs
from tests.helpers.sampling import make_state, sample


def test_trap_40_rank_counts_values_at_or_above() -> None:
    logprobs = torch.tensor([[0.5, 0.2, 0.2, 0.1]]).log()
    for token, rank in ((0, 1), (1, 3), (2, 3), (3, 4)):
        ids, values, ranks = gather_logprobs(logprobs, torch.tensor([token]), 2)
        assert ranks.tolist() == [rank]
        assert ids[0, 0] == token
        assert ids[0, 1] == 0
        assert math.isclose(values[0, 0], float(logprobs[0, token]), rel_tol=1e-6)


def test_trap_40_each_request_gets_as_many_as_it_asked_for() -> None:
    logits = torch.randn(4, 30, generator=torch.Generator().manual_seed(0))
    states = [make_state(SamplingParams(temperature=0, logprobs=k)) for k in (0, 5, None, -1)]
    result = sample(logits, states)
    assert {row: lp.token_ids.shape for row, lp in result.logprobs.items()} == {
        0: (1, 1),
        1: (1, 6),
        3: (1, 31),
    }
    for row, lists in result.logprobs.items():
        assert lists.token_ids.tolist()[0][0] == result.token_ids[row]
        assert lists.logprobs.shape == lists.token_ids.shape
        assert lists.ranks.tolist() == [1]


@pytest.mark.parametrize("temperature", [0.0, 0.5, 2.0])
def test_t29_raw_logprobs_do_not_depend_on_sampling_settings(temperature: float) -> None:
    logits = torch.randn(1, 30, generator=torch.Generator().manual_seed(0)) * 3
    params = SamplingParams(
        temperature=temperature,
        top_p=0.9,
        seed=1,
        logprobs=5,
        repetition_penalty=1.5,
        logit_bias={3: 2.0},
        min_tokens=1,
        all_stop_token_ids=[int(logits.argmax())],
    )
    result = sample(logits, [make_state(params)])
    ids = result.logprobs[0].token_ids.tolist()[0]
    values = result.logprobs[0].logprobs.tolist()[0]
    expected = logits[0].log_softmax(-1)
    assert ids[0] == result.token_ids[0]
    assert ids[1:] == expected.topk(5).indices.tolist()
    assert values == pytest.approx(expected[ids].tolist(), abs=1e-5)
    assert result.logprobs[0].ranks.tolist() == [int((expected >= expected[ids[0]]).sum())]
    assert sum(math.exp(value) for value in values[1:]) <= 1 + 1e-6


def test_trap_41_processed_logprobs_are_of_what_was_drawn_from() -> None:
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log().repeat(2, 1)
    drawn = make_state(SamplingParams(temperature=0.5, top_k=2, seed=1, logprobs=2))
    greedy = make_state(SamplingParams(temperature=0, logprobs=2, logit_bias={3: 5.0}))
    result = sample(logits, [drawn, greedy], mode="processed_logprobs")
    values = result.logprobs[0].logprobs.tolist()[0][1:]
    assert values == pytest.approx([math.log(0.16 / 0.25), math.log(0.09 / 0.25)], abs=1e-5)
    biased = (logits[1] + torch.tensor([0, 0, 0, 5.0])).log_softmax(-1)
    assert result.logprobs[1].logprobs.tolist()[0][0] == pytest.approx(float(biased[3]), abs=1e-5)


@pytest.mark.parametrize("cuts", [[], [3], [1, 2, 3, 4, 5], [5], [4]])
def test_trap_43_prompt_logprobs_are_the_same_for_any_chunks(cuts: list[int]) -> None:
    prompt = [4, 7, 1, 1, 9, 2]
    logits = torch.randn(len(prompt), 20, generator=torch.Generator().manual_seed(0))
    gathered = PromptLogprobs(prompt, 3)
    for start, end in zip([0, *cuts], [*cuts, len(prompt)], strict=True):
        rows = gathered.num_rows(start, end - start)
        if rows:
            gathered.add(start, logits[start : start + rows])
    found = gathered.to_wire()
    expected = to_wire(gather_logprobs(logits[:-1].log_softmax(-1), torch.tensor(prompt[1:]), 3))
    assert found == expected
    assert found.token_ids.shape == (5, 4)


def test_prompt_of_one_token_has_no_logprobs() -> None:
    gathered = PromptLogprobs([4], 2)
    assert gathered.num_rows(0, 1) == 0
    lists = gathered.to_wire()
    assert lists.token_ids.shape == (0, 3)
    assert lists.token_ids.tolist() == []
