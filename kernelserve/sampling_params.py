"""How one request wants its tokens chosen, when it stops, and what it gets back."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import msgspec

from kernelserve.errors import InvalidRequestError

__all__ = ["GREEDY_EPSILON", "RequestOutputKind", "SamplingParams"]

GREEDY_EPSILON = 1e-5
"""Temperatures below this take the most probable token."""
_MIN_TEMPERATURE = 1e-2
_MAX_N = 16_384


class RequestOutputKind(IntEnum):
    """What each RequestOutput of a stream holds."""

    CUMULATIVE = 0
    """Everything so far."""
    DELTA = 1
    """Only what is new."""
    FINAL_ONLY = 2
    """One output, at the end."""


class SamplingParams(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Sampling, stopping and output options of one request. Raises InvalidRequestError when built with a bad value.

    A temperature below 1e-5 is greedy: top_p, top_k and min_p then have no effect, and n must be 1. `ignore_eos`
    ignores the end tokens of the model, never `stop_token_ids` given here. `stop` strings need `detokenize`.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 or -1: all tokens."""
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    """None: as many as max_model_len leaves room for."""
    min_tokens: int = 0
    logprobs: int | None = None
    """How many alternatives to report for each token; 0: the sampled token only; -1: the whole vocabulary."""
    prompt_logprobs: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    skip_reading_prefix_cache: bool | None = None
    """None: true exactly when prompt_logprobs are asked for, since a hit would leave them out."""

    # Filled in by the InputProcessor from the model; not for callers.
    eos_token_id: int | None = None
    """End token that finishes with reason `stop` and no stop_reason; None when ignored."""
    all_stop_token_ids: list[int] = []
    """Every id that min_tokens must mask: model end tokens and stop_token_ids."""
    bad_words_token_ids: list[list[int]] = []

    def __post_init__(self) -> None:
        self._normalize()
        self._check_ranges()
        self._check_lists()
        if self.is_greedy:
            if self.n > 1:
                raise InvalidRequestError(
                    f"n={self.n} with temperature={self.temperature} would give {self.n} equal answers: "
                    "raise the temperature or set n=1"
                )
            self.top_p, self.top_k, self.min_p = 1.0, 0, 0.0
        elif self.temperature < _MIN_TEMPERATURE:
            self.temperature = _MIN_TEMPERATURE

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is taken."""
        return self.temperature < GREEDY_EPSILON

    @property
    def stop_strings(self) -> list[str]:
        """`stop` as a list."""
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else self.stop

    @property
    def reads_prefix_cache(self) -> bool:
        """Whether cached blocks may stand in for computing the prompt."""
        if self.skip_reading_prefix_cache is None:
            return self.prompt_logprobs is None
        return not self.skip_reading_prefix_cache

    def clone(self, **changes: Any) -> SamplingParams:
        """Return an independent copy with `changes`; lists and dicts are copied too."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__}
        for name, value in (fields | changes).items():
            fields[name] = value.copy() if isinstance(value, list | dict) else value
        return SamplingParams(**fields)

    def _normalize(self) -> None:
        if self.seed == -1:
            self.seed = None
        if self.top_k == -1:
            self.top_k = 0
        if self.logprobs is True:
            self.logprobs = 1
        if self.prompt_logprobs is True:
            self.prompt_logprobs = 1
        if isinstance(self.logit_bias, dict):
            self.logit_bias = {_as_id(k): float(v) for k, v in self.logit_bias.items()}

    def _check_ranges(self) -> None:
        _check_int("n", self.n, 1, _MAX_N)
        _check_int("top_k", self.top_k, 0)
        _check_int("min_tokens", self.min_tokens, 0)
        for name in ("logprobs", "prompt_logprobs"):
            if (value := getattr(self, name)) is not None:
                _check_int(name, value, -1)
        if self.seed is not None:
            _check_int("seed", self.seed, -(2**63), 2**63 - 1)
        if self.max_tokens is not None:
            _check_int("max_tokens", self.max_tokens, 1)
            if self.min_tokens > self.max_tokens:
                raise InvalidRequestError(
                    f"min_tokens={self.min_tokens} is above max_tokens={self.max_tokens}"
                )
        _check_float("presence_penalty", self.presence_penalty, -2, 2)
        _check_float("frequency_penalty", self.frequency_penalty, -2, 2)
        _check_float("temperature", self.temperature, 0, 2)
        _check_float("min_p", self.min_p, 0, 1)
        _check_float("top_p", self.top_p, 0, 1, open_low=True)
        _check_float("repetition_penalty", self.repetition_penalty, 0, math.inf, open_low=True)

    def _check_lists(self) -> None:
        if any(not isinstance(s, str) or not s for s in self.stop_strings):
            raise InvalidRequestError(f"stop={self.stop!r} must hold non-empty strings")
        if self.stop_strings and not self.detokenize:
            raise InvalidRequestError(
                "stop strings are looked for in the text: set detokenize=True"
            )
        if self.bad_words and any(not isinstance(w, str) or not w for w in self.bad_words):
            raise InvalidRequestError(f"bad_words={self.bad_words!r} must hold non-empty strings")
        if self.prompt_logprobs is not None and self.skip_reading_prefix_cache is False:
            raise InvalidRequestError(
                "prompt_logprobs need every prompt token to be computed: skip_reading_prefix_cache=False would leave "
                "out the cached ones"
            )
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            raise InvalidRequestError("allowed_token_ids=[] would allow no token at all")
        if self.logit_bias and any(not math.isfinite(v) for v in self.logit_bias.values()):
            raise InvalidRequestError(f"logit_bias={self.logit_bias!r} must hold finite numbers")
        for name in ("stop_token_ids", "allowed_token_ids"):
            for token_id in getattr(self, name) or ():
                _as_id(token_id, name)


def _as_id(value: Any, name: str = "logit_bias") -> int:
    try:
        if isinstance(value, bool | float):
            raise ValueError
        return int(value)
    except (TypeError, ValueError):
        raise InvalidRequestError(f"{name}: {value!r} is not a token id") from None


def _check_int(name: str, value: Any, low: int, high: int | None = None) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or value < low
        or (high is not None and value > high)
    ):
        limit = f"at least {low}" if high is None else f"from {low} to {high}"
        raise InvalidRequestError(f"{name}={value!r} must be a whole number {limit}")


def _check_float(name: str, value: Any, low: float, high: float, *, open_low: bool = False) -> None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or value > high or value < low or (open_low and value == low):
        start = f"above {low}" if open_low else f"from {low}"
        end = "" if high == math.inf else f" up to {high}"
        raise InvalidRequestError(f"{name}={value!r} must be a finite number {start}{end}")
