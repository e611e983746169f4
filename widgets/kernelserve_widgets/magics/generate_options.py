"""The options of %%generate, and the SamplingParams that they ask for."""

from __future__ import annotations

import argparse
import json
from typing import Any

from kernelserve.errors import InvalidRequestError
from kernelserve.sampling_params import SamplingParams
from kernelserve_widgets.magics.option_parser import OptionParser

__all__ = ["FORMATS", "generate_parser", "sampling_params"]

FORMATS = ("text", "markdown", "json", "code")
_DESCRIPTION = """\
Answer the body of the cell, which is sent as it is, byte for byte (only the line break at its end is not).

    %%generate -o story --max-tokens 200 --seed 7
    Write a story about a lighthouse.

A model with a chat template gets the body as the message of a user; --raw sends the body alone, for the model to go on
with. The value of the cell is a Result; -o gives it a name. A semicolon at the end of the line hides Out[n].
"""
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\\\": "\\"}
_SAMPLING = (
    # option, field of SamplingParams, type, help
    ("-n", "n", int, "number of answers, shown side by side"),
    ("--max-tokens", "max_tokens", int, "most tokens of each answer"),
    ("--min-tokens", "min_tokens", int, "fewest tokens before the model may end"),
    ("--temperature", "temperature", float, "0 takes the most probable token; 1 samples from the model as it is"),
    ("--top-p", "top_p", float, "sample from the most probable tokens that together have this probability"),
    ("--top-k", "top_k", int, "sample from the k most probable tokens; 0: from all"),
    ("--min-p", "min_p", float, "leave out tokens below this share of the best one's probability"),
    ("--seed", "seed", int, "same seed, same answer"),
    ("--presence-penalty", "presence_penalty", float, "for tokens that the answer has, -2 to 2"),
    ("--frequency-penalty", "frequency_penalty", float, "for each time that the answer has a token, -2 to 2"),
    ("--repetition-penalty", "repetition_penalty", float, "for tokens of prompt and answer; 1: none"),
    ("--logprobs", "logprobs", int, "log-probabilities of so many alternatives for each token"),
    ("--prompt-logprobs", "prompt_logprobs", int, "the same for the tokens of the prompt"),
)  # fmt: skip
_REPEATED = (
    (
        "--stop",
        "stop",
        str,
        "end before this text; \\n is a line break; may be given several times",
    ),
    ("--stop-token-id", "stop_token_ids", int, "end at this token; may be given several times"),
    ("--bad-word", "bad_words", str, "never write this; may be given several times"),
    (
        "--allowed-token-id",
        "allowed_token_ids",
        int,
        "write only these tokens; may be given several times",
    ),
)
_SWITCHES = (
    ("--ignore-eos", "ignore_eos", True, "go on to --max-tokens whatever the model says"),
    ("--include-stop", "include_stop_str_in_output", True, "keep the --stop text in the answer"),
    ("--keep-special-tokens", "skip_special_tokens", False, "show special tokens as text"),
)


def generate_parser() -> OptionParser:
    """Return the parser of the line of %%generate."""
    parser = OptionParser("%%generate", _DESCRIPTION)
    _add_sampling(parser)
    _add_prompt(parser)
    _add_result(parser)
    return parser


def sampling_params(
    options: argparse.Namespace, defaults: SamplingParams, configured: dict[str, Any]
) -> SamplingParams:
    """Return the model's recommendation, changed by the notebook's configuration, changed by the options.

    Raises InvalidRequestError for values out of range.
    """
    changes = {field: value for field, value in configured.items() if value is not None}
    for _, field, _, _ in (*_SAMPLING, *_REPEATED):
        if (value := getattr(options, field)) is not None:
            changes[field] = value
    changes |= {field: value for _, field, value, _ in _SWITCHES if getattr(options, field)}
    if options.stop:
        changes["stop"] = [_unescape(text) for text in options.stop]
    if options.logit_bias is not None:
        changes["logit_bias"] = _read_logit_bias(options.logit_bias)
    if options.tokens and changes.get("logprobs") is None:
        changes["logprobs"] = 5
    if changes.get("n", 1) > 1 and "temperature" not in changes and defaults.is_greedy:
        changes["temperature"] = 1.0
    return defaults.clone(**changes)


def _add_sampling(parser: OptionParser) -> None:
    group = parser.add_argument_group("sampling")
    for option, field, kind, text in _SAMPLING:
        group.add_argument(option, dest=field, type=kind, help=text, metavar=kind.__name__.upper())
    for option, field, each, text in _REPEATED:
        group.add_argument(
            option, dest=field, type=each, action="append", help=text, metavar=kind.__name__.upper()
        )
    for option, field, _, text in _SWITCHES:
        group.add_argument(option, dest=field, action="store_true", help=text)
    group.add_argument("--logit-bias", metavar="JSON", help='added to logits: {"token id": bias}')


def _add_prompt(parser: OptionParser) -> None:
    group = parser.add_argument_group("prompt")
    group.add_argument(
        "-t", "--template", action="store_true",
        help="fill {{ name }} in the body with the notebook's variables (sandboxed Jinja2)",
    )  # fmt: skip
    group.add_argument(
        "--raw", action="store_true", default=None, help="no chat template: go on with the body"
    )
    group.add_argument(
        "--system", metavar="TEXT", help="system message; with --chat it stays for the conversation"
    )
    group.add_argument(
        "--chat",
        metavar="NAME",
        help="a turn of this conversation; running the cell again replaces it",
    )
    group.add_argument(
        "--continue-from", metavar="REQUEST:TOKENS:ID",
        help="go on with an earlier answer after so many of its tokens and then this token; the body shows the text "
        "up to there, and may be changed",
    )  # fmt: skip
    group.add_argument(
        "--image",
        metavar="NAME",
        action="append",
        default=[],
        help="a picture for the model: a variable (drop zone, PIL image, array, figure, bytes, ...), a path or a URL; "
        "drop or clipboard: shows a drop zone here and waits for a picture; attachment[:NAME]: of the Markdown cell "
        "above, as saved; may be given several times, order kept",
    )
    group.add_argument(
        "--priority",
        type=int,
        default=0,
        metavar="INT",
        help="lower runs earlier (policy `priority`)",
    )
    group.add_argument(
        "--cache-salt", metavar="TEXT", help="share the prefix cache only with the same salt"
    )


def _add_result(parser: OptionParser) -> None:
    group = parser.add_argument_group("result")
    group.add_argument(
        "-o",
        "--output",
        metavar="NAME",
        help="variable for the Result, also if it is stopped or fails",
    )
    group.add_argument(
        "--format", choices=FORMATS, default="text", help="how the finished answer is shown"
    )
    group.add_argument("--tokens", action="store_true", help="shade each token by its probability")
    group.add_argument(
        "--background", "-b", action="store_true", help="return at once; the answer streams on"
    )
    group.add_argument(
        "--on-error", choices=("raise", "return"), default=None,
        help="raise: a failure fails the cell; return: the Result holds it",
    )  # fmt: skip


def _unescape(text: str) -> str:
    for written, meant in _ESCAPES.items():
        text = text.replace(written, meant)
    return text


def _read_logit_bias(text: str) -> dict[int, float]:
    try:
        bias = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidRequestError(f"--logit-bias {text!r} is not JSON: {error.msg}") from None
    if not isinstance(bias, dict):
        raise InvalidRequestError(f'--logit-bias {text!r} must look like {{"42": -5.0}}')
    return bias
