"""Log-probabilities: order, ranks, texts, and what is delivered when."""

from __future__ import annotations

import math

import pytest

from kernelserve.client.logprobs import LogprobsProcessor
from kernelserve.protocol import FinishReason
from kernelserve.sampling_params import RequestOutputKind
from tests.helpers.client_side import Client, logprobs_lists, tokens
from tests.helpers.tokenizers import byte_fallback, byte_level


def read(row, tokenizer=None, prompt=(7,)):
    processor = LogprobsProcessor(tokenizer, list(prompt))
    processor.append(logprobs_lists([row]), 1)
    return processor.positions[0]


def test_t29_the_sampled_token_comes_first_and_has_a_rank():
    entry = read(([9, 5, 6], [-3.0, -0.5, -1.5], 17))
    assert list(entry) == [9, 5, 6]
    assert [(e.logprob, e.rank) for e in entry.values()] == [(-3.0, 17), (-0.5, 1), (-1.5, 2)]
    assert sum(math.exp(e.logprob) for e in entry.values()) <= 1


def test_trap_40_a_sampled_token_among_the_best_has_its_place_as_rank():
    entry = read(([6, 5, 6], [-1.0, -1.0, -1.0], 2))
    assert list(entry) == [6, 5]
    assert [e.rank for e in entry.values()] == [2, 1]
    tied = read(([5, 5, 6], [-1.0, -1.0, -1.0], 2))
    assert tied[5].rank == 1


def test_zero_logprobs_are_the_sampled_token_only():
    assert list(read(([9], [-3.0], 4))) == [9]


def test_texts_keep_spaces_and_complete_characters():
    tokenizer = byte_fallback()
    [mark] = [tokenizer.encode("of", add_special_tokens=False)[0]]
    assert read(([mark], [-1.0], 1), tokenizer)[mark].decoded_token == " "
    tokenizer = byte_level()
    processor = LogprobsProcessor(tokenizer, tokenizer.encode("see"))
    fire = tokenizer.encode(" 🔥", add_special_tokens=False)
    processor.append(logprobs_lists([([i], [-1.0], 1) for i in fire]), len(fire))
    texts = [next(iter(entry.values())).decoded_token for entry in processor.positions]
    assert "".join(text or "" for text in texts) == " 🔥"
    assert texts[-1] == "🔥"


def test_the_context_of_an_alternative_is_what_was_sampled():
    tokenizer = byte_level()
    fire = tokenizer.encode("🔥", add_special_tokens=False)
    processor = LogprobsProcessor(tokenizer, tokenizer.encode("x"))
    other = tokenizer.encode("a")[0]
    rows = [([i, other], [-1.0, -2.0], 1) for i in fire[:-1]]
    rows.append(([other, fire[-1]], [-1.0, -2.0], 1))
    processor.append(logprobs_lists(rows), len(rows))
    assert processor.positions[-1][fire[-1]].decoded_token == "🔥"


@pytest.mark.parametrize("kind", list(RequestOutputKind))
def test_trap_43_prompt_logprobs_begin_with_none_and_come_once(kind):
    client = Client(byte_level())
    processed, sink = client.add([7, 8, 9], prompt_logprobs=1, output_kind=kind)
    internal = processed.requests[0].request_id
    rows = logprobs_lists([([8, 5], [-1.0, -0.5], 2), ([9, 5], [-2.0, -0.5], 3)])
    client.step(tokens(internal, [10], new_prompt_logprobs=rows))
    client.step(tokens(internal, [11], FinishReason.LENGTH))
    delivered = [o.prompt_logprobs for o in sink.outputs]
    expected = delivered[0]
    assert expected is not None
    assert expected[0] is None
    assert [list(entry or ()) for entry in expected[1:]] == [[8, 5], [9, 5]]
    if kind is RequestOutputKind.DELTA:
        assert delivered[1] is None
    else:
        assert delivered[-1] == expected
    assert sink.last.outputs[0].logprobs is None


def test_trap_43_a_prompt_of_one_token_has_one_none():
    client = Client(byte_level())
    processed, sink = client.add([7], prompt_logprobs=1)
    client.step(tokens(processed.requests[0].request_id, [10], FinishReason.LENGTH))
    assert sink.last.prompt_logprobs == [None]


def test_prompt_logprobs_survive_merging_with_another_answer():
    client = Client(byte_level())
    processed, sink = client.add([7, 8], prompt_logprobs=0, n=2, temperature=1.0)
    first, second = (r.request_id for r in processed.requests)
    client.step(tokens(second, [10]))
    rows = logprobs_lists([([8], [-1.0], 2)])
    client.step(tokens(first, [10], new_prompt_logprobs=rows))
    older, newer = sink.outputs
    assert older.prompt_logprobs is None
    older.merge(newer, delta=True)
    assert older.prompt_logprobs is not None


def test_cumulative_logprob_sums_the_sampled_tokens():
    client = Client(byte_level())
    processed, sink = client.add("a", logprobs=1)
    internal = processed.requests[0].request_id
    client.step(tokens(internal, [9], new_logprobs=logprobs_lists([([9, 5], [-3.0, -0.5], 9)])))
    rows = logprobs_lists([([5, 5], [-0.5, -0.5], 1)])
    client.step(tokens(internal, [5], FinishReason.LENGTH, new_logprobs=rows))
    assert sink.joined().cumulative_logprob == -3.5
    assert [next(iter(entry)) for entry in sink.joined().logprobs or ()] == [9, 5]
