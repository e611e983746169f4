"""SamplingParams refuses what cannot work and says why."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kernelserve.errors import InvalidRequestError
from kernelserve.sampling_params import RequestOutputKind, SamplingParams


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 0),
        ("n", True),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", float("nan")),
        ("top_p", 0),
        ("top_p", 1.1),
        ("top_k", -2),
        ("top_k", 1.5),
        ("min_p", 1.5),
        ("presence_penalty", 3),
        ("frequency_penalty", -3),
        ("repetition_penalty", 0),
        ("repetition_penalty", float("inf")),
        ("max_tokens", 0),
        ("min_tokens", -1),
        ("logprobs", -2),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("bad_words", [""]),
        ("allowed_token_ids", []),
        ("stop_token_ids", ["x"]),
        ("logit_bias", {1: float("inf")}),
        ("logit_bias", {"word": 1.0}),
        ("seed", 2**63),
    ],
)
def test_a_bad_value_is_refused_by_name(field, value):
    with pytest.raises(InvalidRequestError, match=field):
        SamplingParams(**{field: value})


def test_min_tokens_above_max_tokens_is_refused_with_both_numbers():
    with pytest.raises(InvalidRequestError, match=r"min_tokens=20.*max_tokens=10"):
        SamplingParams(min_tokens=20, max_tokens=10)


def test_stop_strings_need_text():
    with pytest.raises(InvalidRequestError, match="detokenize"):
        SamplingParams(stop="x", detokenize=False)


def test_trap_44_a_tiny_temperature_is_greedy_and_overrides_the_filters():
    params = SamplingParams(temperature=1e-6, top_p=0.5, top_k=3, min_p=0.2)
    assert params.is_greedy
    assert (params.top_p, params.top_k, params.min_p) == (1.0, 0, 0.0)


def test_a_small_temperature_is_raised_to_one_that_can_be_computed():
    assert SamplingParams(temperature=1e-3).temperature == 1e-2


def test_trap_39_greedy_with_n_above_one_is_refused():
    with pytest.raises(InvalidRequestError, match="n=2"):
        SamplingParams(temperature=0, n=2)


def test_usual_spellings_are_accepted():
    bias: dict[Any, float] = {"5": 2}
    params = SamplingParams(top_k=-1, seed=-1, logprobs=True, logit_bias=bias)
    assert (params.top_k, params.seed, params.logprobs) == (0, None, 1)
    assert params.logit_bias == {5: 2.0}
    assert SamplingParams(stop="x").stop_strings == ["x"]


def test_a_clone_shares_nothing():
    params = SamplingParams(stop=["a"], logit_bias={1: 1.0})
    copy = params.clone(output_kind=RequestOutputKind.DELTA)
    assert isinstance(copy.stop, list)
    assert copy.logit_bias is not None
    copy.stop.append("b")
    copy.logit_bias[2] = 1.0
    assert params.stop == ["a"]
    assert params.logit_bias == {1: 1.0}
    assert params.output_kind is RequestOutputKind.CUMULATIVE


def test_prompt_logprobs_switch_off_reading_the_prefix_cache():
    assert SamplingParams().reads_prefix_cache
    assert not SamplingParams(prompt_logprobs=1).reads_prefix_cache
    with pytest.raises(InvalidRequestError, match="prompt_logprobs"):
        SamplingParams(prompt_logprobs=1, skip_reading_prefix_cache=False)


def test_defaults_do_not_travel():
    body = msgspec.msgpack.encode(SamplingParams(max_tokens=5))
    assert msgspec.msgpack.decode(body) == {"max_tokens": 5}
    assert msgspec.msgpack.decode(body, type=SamplingParams) == SamplingParams(max_tokens=5)
