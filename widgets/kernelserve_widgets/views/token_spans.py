"""The tokens of an answer with their probabilities and alternatives, laid over its text."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelserve.outputs import CompletionOutput, Logprob, PositionLogprobs

__all__ = ["Alternative", "TokenSpan", "spans_of_delta", "spans_of_text"]

_MAX_ALTERNATIVES = 8
_SLACK = 8
"""How many characters of the text may belong to tokens that show none."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """What else could have come at a position."""

    text: str
    token_id: int
    probability: float


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """A piece of an answer: one token, or several that make up one character."""

    text: str
    token_id: int
    index: int
    """Of its last token in the answer."""
    probability: float
    alternatives: tuple[Alternative, ...]
    """The most probable first; the sampled token is one of them only if it is among the most probable."""


def spans_of_delta(output: CompletionOutput) -> list[TokenSpan]:
    """Return the tokens of a piece of a stream, counted from its beginning, with the texts the tokenizer gives."""
    return [
        _span(position, _sampled(position).decoded_token or "", index)
        for index, position in enumerate(output.logprobs or [])
    ]


def spans_of_text(output: CompletionOutput) -> list[TokenSpan]:
    """Return the tokens of a whole answer. Their texts, joined, are exactly its text.

    The tokenizer shows some tokens with other characters than the text has (a leading space, half a character) and
    some not at all: what does not fit goes to the next token that fits, what lies behind a stop string is left out.
    """
    text, place, spans = output.text, 0, []
    for index, position in enumerate(output.logprobs or []):
        piece = _sampled(position).decoded_token or ""
        end = _end_in(text, place, piece) or _end_in(text, place, piece.lstrip())
        if end is None:
            continue
        spans.append(_span(position, text[place:end], index))
        place = end
    if place < len(text):
        spans.append(TokenSpan(text[place:], -1, -1, 1.0, ()))
    return spans


def _end_in(text: str, place: int, piece: str) -> int | None:
    """Where `piece` ends in `text` if it begins at `place` or a little later."""
    found = text.find(piece, place, place + len(piece) + _SLACK) if piece else -1
    return None if found < 0 else found + len(piece)


def _span(position: PositionLogprobs, text: str, index: int) -> TokenSpan:
    token_id = next(iter(position))
    alternatives = sorted(
        (
            Alternative(entry.decoded_token or "", other, math.exp(entry.logprob))
            for other, entry in position.items()
            if entry.rank is None or entry.rank <= len(position)
        ),
        key=lambda alternative: -alternative.probability,
    )
    return TokenSpan(
        text,
        token_id,
        index,
        math.exp(position[token_id].logprob),
        tuple(alternatives[:_MAX_ALTERNATIVES]),
    )


def _sampled(position: PositionLogprobs) -> Logprob:
    return next(iter(position.values()))
