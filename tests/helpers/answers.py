"""Answers made by hand, as they come from an engine: deltas, results, log-probabilities."""

from __future__ import annotations

import math
from typing import Any

from kernelserve import CompletionOutput, RequestOutput, SamplingParams
from kernelserve.outputs import Logprob, PositionLogprobs
from kernelserve_widgets.result import Result

__all__ = ["delta", "made_result", "position", "token_delta"]


def delta(*texts: str, **facts: Any) -> RequestOutput:
    """What is new of each answer; one token a character."""
    outputs = [
        CompletionOutput(index, text, list(range(len(text)))) for index, text in enumerate(texts)
    ]
    return RequestOutput(
        "r1", "prompt", [1, 2], [one for one in outputs if one.text], False, **facts
    )


def position(text: str, probability: float, **others: float) -> PositionLogprobs:
    """The sampled token, id 0, and others with ids from 1 on; keys are their texts."""
    entries: PositionLogprobs = {}
    for token_id, (shown, p) in enumerate([(text, probability), *others.items()]):
        entries[token_id] = Logprob(math.log(p), token_id, shown)
    return entries


def token_delta(positions: list[PositionLogprobs], text: str | None = None) -> RequestOutput:
    """The next tokens of answer 0; their text is what they show unless another is given."""
    shown = "".join(next(iter(one.values())).decoded_token or "" for one in positions)
    output = CompletionOutput(
        0,
        shown if text is None else text,
        [next(iter(one)) for one in positions],
        logprobs=positions,
    )
    return RequestOutput("r1", "prompt", [1, 2], [output], False)


def made_result(*texts: str, reason: str | None = "stop", format: str = "text") -> Result:
    """A result with these answers."""
    result = Result("r1", "prompt", [1, 2], SamplingParams(n=len(texts)), "model", format=format)
    if texts:
        result.merge(delta(*texts))
    for output in result.outputs:
        output.finish_reason = reason
    return result
