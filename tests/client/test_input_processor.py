"""What is refused before it is sent, and what is sent."""

from __future__ import annotations

import array
import itertools

import pytest

from kernelserve.config import EngineConfig
from kernelserve.errors import InvalidRequestError
from kernelserve.sampling_params import RequestOutputKind, SamplingParams
from tests.helpers.client_side import Client
from tests.helpers.tokenizers import byte_fallback, byte_level


def process(prompt, client=None, **params):
    client = client or Client(byte_level())
    return client.input.process(prompt, SamplingParams(**params), request_id="r", now=5.0)


def refused(match, prompt, client=None, **params):
    with pytest.raises(InvalidRequestError, match=match):
        process(prompt, client, **params)


def test_t13_a_prompt_at_the_context_limit():
    request = process([7] * 127, max_tokens=50)
    assert request.requests[0].sampling_params.max_tokens == 1
    refused("128 tokens, but max_model_len is 128.*at most 127", [7] * 128)
    refused("129 tokens, but max_model_len is 128", [7] * 129)
    assert process("Here").prompt_token_ids


def test_t14_a_prompt_that_can_never_fit_is_refused_with_numbers():
    client = Client(None, max_model_len=4096, num_gpu_blocks=51)
    for _ in range(5):
        refused("1000 tokens and needs 63 KV blocks of 16.* only 50", [7] * 1000, client)
    assert process([7] * 799, client, max_tokens=9).params.max_tokens == 1
    refused("800 tokens and needs 51 KV blocks of 16.* at most 799", [7] * 800, client)
    assert process([7] * 30, client, max_tokens=None).params.max_tokens == 770


def test_t16_an_empty_prompt_is_refused():
    refused("prompt is empty", "")
    refused("prompt is empty", [])
    refused("prompt is empty", {"prompt_token_ids": []})
    assert process("", Client(byte_fallback())).prompt_token_ids == [1]
    assert process("  ").prompt_token_ids


@pytest.mark.parametrize("wrong", [500, 505, -1, 2**40])
def test_t20_ids_outside_the_vocabulary_are_refused(wrong):
    match = f"{wrong} is not in the vocabulary of 500"
    refused(match, [7, wrong])
    refused(match, [7], stop_token_ids=[wrong], min_tokens=1)
    refused(match, [7], logit_bias={wrong: 1.0})
    refused(match, [7], allowed_token_ids=[3, wrong])


def test_t20_ids_without_a_text_but_in_the_model_are_allowed():
    assert process([499], logit_bias={499: 1.0}).prompt_token_ids == [499]


def test_t19_all_end_tokens_of_the_model_stop():
    client = Client(byte_level(), eos_token_ids=[2, 0, 8])
    params = process("a", client, stop_token_ids=[9]).params
    assert params.eos_token_id == 2
    assert sorted(params.stop_token_ids or ()) == [0, 8, 9]
    assert params.all_stop_token_ids == [0, 2, 8, 9]


def test_t19_ignore_eos_ignores_the_models_end_tokens_only():
    client = Client(byte_level(), eos_token_ids=[2, 0, 8])
    params = process("a", client, stop_token_ids=[8], ignore_eos=True).params
    assert (params.eos_token_id, params.stop_token_ids) == (None, [8])
    assert params.all_stop_token_ids == [0, 2, 8]


def test_end_tokens_that_the_model_cannot_sample_are_left_out():
    client = Client(byte_level(), eos_token_ids=[900, 2, 901])
    params = process("a", client).params
    assert (params.eos_token_id, params.stop_token_ids) == (2, [])
    assert process("a", Client(None, eos_token_ids=[]).input and client).params


@pytest.mark.parametrize("name", ["logprobs", "prompt_logprobs"])
def test_more_logprobs_than_the_limit_are_refused(name):
    refused(f"{name}=21 .* max_logprobs is 20", [7], **{name: 21})
    refused(f"{name}=-1 asks for 500 .* max_logprobs is 20", [7], **{name: -1})
    assert process([7], **{name: 20}).requests
    unlimited = Client(None, config=EngineConfig(max_logprobs=-1))
    assert process([7], unlimited, **{name: -1}).requests


def test_t29_logprobs_are_asked_for_as_given():
    assert process([7], logprobs=0).requests[0].sampling_params.logprobs == 0


def test_t32_the_callers_params_are_never_changed():
    given = SamplingParams(
        n=2,
        temperature=1.0,
        seed=7,
        max_tokens=None,
        stop="x",
        stop_token_ids=[9],
        bad_words=["of"],
        output_kind=RequestOutputKind.DELTA,
    )
    before = given.clone()
    request = Client(byte_level(), eos_token_ids=[2, 0]).input.process(
        "a", given, request_id="r", now=0.0
    )
    assert given == before
    for child in request.requests:
        assert child.sampling_params.stop_token_ids is not given.stop_token_ids


def test_trap_39_children_have_seeds_of_their_own():
    request = process("a", n=3, seed=41, temperature=1.0, prompt_logprobs=1)
    internal = request.internal_id
    assert internal.startswith("r-")
    assert len(internal) == 10
    assert [r.request_id for r in request.requests] == [f"{i}_{internal}" for i in range(3)]
    assert [r.sampling_params.seed for r in request.requests] == [41, 42, 43]
    assert [r.sampling_params.n for r in request.requests] == [1, 1, 1]
    assert [r.sampling_params.prompt_logprobs for r in request.requests] == [1, None, None]
    assert {id(r.sampling_params) for r in request.requests}.__len__() == 3
    top = process("a", n=2, seed=2**63 - 1, temperature=1.0)
    assert top.requests[1].sampling_params.seed == -(2**63)


def test_trap_39_unseeded_children_stay_unseeded():
    request = process("a", n=2, temperature=1.0)
    assert [r.sampling_params.seed for r in request.requests] == [None, None]


def test_trap_44_greedy_overrides_the_other_settings():
    params = process("a", temperature=0.0, top_p=0.5, top_k=3, min_p=0.1).params
    assert (params.top_p, params.top_k, params.min_p) == (1.0, 0, 0.0)
    with pytest.raises(InvalidRequestError, match="n=2"):
        SamplingParams(n=2, temperature=0.0)


def test_trap_45_bad_words_are_spelled_with_and_without_a_space():
    tokenizer = byte_level()
    forms = process("a", bad_words=["capital", " of"]).params.bad_words_token_ids
    assert forms == [
        tokenizer.encode(spelling) for spelling in ("capital", " capital", "of", " of")
    ]
    assert all(process("a", bad_words=[" "]).params.bad_words_token_ids)


def test_internal_ids_differ_and_requests_carry_the_envelope():
    client = Client(byte_level())
    requests = [
        client.input.process(
            "a", SamplingParams(), request_id="r", priority=3, cache_salt="s", now=5.0
        )
        for _ in range(2)
    ]
    first, second = (r.requests[0] for r in requests)
    assert first.request_id != second.request_id
    assert (first.external_req_id, first.priority, first.cache_salt) == ("r", 3, "s")
    assert first.arrival_time == 5.0


@pytest.mark.parametrize(
    "prompt",
    [[7, 8], (7, 8), array.array("i", [7, 8]), {"prompt_token_ids": [7, 8]}, ("t", [7, 8])],
)
def test_token_ids_may_come_in_any_form(prompt):
    assert process(prompt).prompt_token_ids == [7, 8]


def test_text_may_come_with_or_without_ids():
    ids = byte_level().encode("Here")
    for prompt in ("Here", {"prompt": "Here"}, ("Here", ids)):
        request = process(prompt)
        assert (request.prompt, request.prompt_token_ids) == ("Here", ids)


def test_the_callers_ids_are_copied():
    ids = [7, 8]
    request = process(ids)
    ids.append(9)
    assert request.prompt_token_ids == [7, 8]


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        5,
        {"prompt": "a", "multi_modal_data": {"image": b"x"}},
        {},
        [7, "a"],
        [1.5],
        {"prompt": 5},
        b"a",
    ],
)
def test_other_prompts_are_refused(prompt):
    with pytest.raises(InvalidRequestError):
        process(prompt)


@pytest.mark.parametrize(
    "envelope",
    [{"request_id": 5}, {"request_id": ""}, {"priority": "high"}, {"cache_salt": ""}],
)
def test_a_wrong_envelope_is_refused(envelope):
    client = Client(byte_level())
    fields = {"request_id": "r", "now": 0.0} | envelope
    with pytest.raises(InvalidRequestError):
        client.input.process("a", SamplingParams(), **fields)


def test_params_must_be_params_and_are_checked_again():
    client = Client(byte_level())
    with pytest.raises(InvalidRequestError, match="must be SamplingParams"):
        client.input.process("a", {"n": 1}, request_id="r", now=0.0)  # type: ignore[arg-type]
    params = SamplingParams()
    params.temperature = -1.0
    with pytest.raises(InvalidRequestError, match="temperature"):
        client.input.process("a", params, request_id="r", now=0.0)


def test_min_tokens_that_do_not_fit_are_refused():
    refused(
        "min_tokens=100, but after a prompt of 60 tokens there is room for 68",
        [7] * 60,
        min_tokens=100,
        max_tokens=100,
    )


def test_without_a_tokenizer_ids_are_served_and_text_is_refused():
    client = Client(None)
    assert not process([7], client).params.detokenize
    refused("no tokenizer", "text", client)
    refused("stop strings need a tokenizer", [7], client, stop="x")
    refused("bad_words need a tokenizer", [7], client, bad_words=["x"])


def test_a_refusal_leaves_nothing_behind():
    client = Client(byte_level())
    for prompt, _ in itertools.product(["", [900], [7] * 200], range(100)):
        with pytest.raises(InvalidRequestError):
            client.add(prompt)
    assert not client.output.has_unfinished
