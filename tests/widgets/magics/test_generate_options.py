"""The line of %%generate and %serve: what is understood, and what is said otherwise."""

from __future__ import annotations

import re
from typing import Any

import pytest

import kernelserve as ks
from kernelserve import InvalidRequestError, SamplingParams
from kernelserve_widgets.magics.generate_options import generate_parser, sampling_params
from kernelserve_widgets.magics.serve_options import engine_options, serve_parser


def params(line: str, *, configured: dict[str, Any] | None = None, **recommended) -> SamplingParams:
    options = generate_parser().parse_line(line)
    return sampling_params(options, SamplingParams(**recommended), configured or {})


def test_every_text_option_of_sampling_params_can_be_given() -> None:
    line = (
        "-n 2 --max-tokens 9 --min-tokens 2 --temperature 0.7 --top-p 0.9 --top-k 40 --min-p 0.1 --seed 7 "
        "--presence-penalty 0.1 --frequency-penalty 0.2 --repetition-penalty 1.1 --logprobs 3 --prompt-logprobs 1 "
        "--stop END --stop '\\n' --stop-token-id 5 --bad-word no --allowed-token-id 1 --allowed-token-id 2 "
        "--ignore-eos --include-stop --keep-special-tokens --logit-bias '{\"5\": -2}'"
    )
    assert params(line) == SamplingParams(
        n=2, max_tokens=9, min_tokens=2, temperature=0.7, top_p=0.9, top_k=40, min_p=0.1, seed=7,
        presence_penalty=0.1, frequency_penalty=0.2, repetition_penalty=1.1, logprobs=3, prompt_logprobs=1,
        stop=["END", "\n"], stop_token_ids=[5], bad_words=["no"], allowed_token_ids=[1, 2], ignore_eos=True,
        include_stop_str_in_output=True, skip_special_tokens=False, logit_bias={5: -2.0},
    )  # fmt: skip


def test_an_option_goes_before_the_configuration_and_that_before_the_model() -> None:
    configured = {"temperature": 0.5, "max_tokens": 100, "top_p": None}
    chosen = params("--max-tokens 5", configured=configured, temperature=0.2, top_p=0.8)
    assert (chosen.max_tokens, chosen.temperature, chosen.top_p) == (5, 0.5, 0.8)


def test_tokens_asks_for_the_logprobs_that_it_shows() -> None:
    assert params("--tokens").logprobs == 5
    assert params("--tokens --logprobs 2").logprobs == 2


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("--temprature 1", "no option --temprature; did you mean --temperature?"),
        ("--max-token 1", "did you mean --max-tokens?"),
        ("--format html", "'html' is not one of text, markdown, json, code"),
        ("--format jsn", "did you mean json?"),
        ("--max-tokens many", "invalid int value: 'many'"),
        ("--stop 'open", "No closing quotation"),
        ("--logit-bias {", "is not JSON"),
        ("stray", "unrecognized arguments: stray"),
    ],
)
def test_b6_a_wrong_option_gets_one_line_with_the_nearest(line: str, hint: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        params(line)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_out_of_range_are_refused_by_name() -> None:
    with pytest.raises(InvalidRequestError, match=r"top_p=1.5 must be"):
        params("--top-p 1.5")


def test_serve_knows_every_option_of_the_engine() -> None:
    known = {option.removeprefix("--").replace("-", "_") for option in serve_parser().options}
    assert set(ks.EngineOptions.__annotations__) <= known
    line = "some/model --max-model-len 512 --lifetime linger --no-enable-prefix-caching --gpu-memory-utilization .5"
    options = serve_parser().parse_line(line)
    assert options.model == "some/model"
    assert engine_options(options) == {
        "max_model_len": 512,
        "lifetime": "linger",
        "enable_prefix_caching": False,
        "gpu_memory_utilization": 0.5,
    }


def test_the_help_names_every_option() -> None:
    for parser in (generate_parser(), serve_parser()):
        text = parser.format_help()
        assert not [o for o in parser.options if not re.search(rf"{re.escape(o)}\b", text)]
