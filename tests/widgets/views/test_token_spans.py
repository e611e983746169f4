"""Tokens laid over the text of their answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelserve import CompletionOutput
from kernelserve_widgets.views.token_spans import spans_of_text
from tests.helpers.answers import position


def spans(text: str, *shown: str) -> list[str]:
    logprobs = [position(piece, 0.5) for piece in shown]
    return [span.text for span in spans_of_text(CompletionOutput(0, text, [], logprobs=logprobs))]


@pytest.mark.parametrize(
    ("text", "shown", "pieces"),
    [
        ("The cat", ["The", " cat"], ["The", " cat"]),
        ("Hello", [" Hello"], ["Hello"]),  # the first token of a sentencepiece text
        ("a😀b", ["a", "", "", "😀", "b"], ["a", "😀", "b"]),  # a character of several tokens
        ("ab", ["a", "<|special|>", "b"], ["a", "b"]),  # skipped special tokens
        ("ab", ["a", "b", "END"], ["a", "b"]),  # behind a stop string
        ("a?b", ["a", "\ufffd", "b"], ["a", "?b"]),  # a byte that the text shows otherwise
        ("ab rest", ["a", "b"], ["a", "b", " rest"]),  # logprobs ended early
        ("", ["x"], []),
    ],
)
def test_each_piece_of_the_text_belongs_to_its_token(text, shown, pieces) -> None:
    assert spans(text, *shown) == pieces


@given(st.text(max_size=20), st.lists(st.text(max_size=4), max_size=12))
def test_the_pieces_joined_are_always_the_text(text: str, shown: list[str]) -> None:
    assert "".join(spans(text, *shown)) == text


def test_alternatives_are_the_most_probable_first() -> None:
    logprobs = [position("a", 0.1, b=0.3, c=0.6)]
    [span] = spans_of_text(CompletionOutput(0, "a", [0], logprobs=logprobs))
    assert [(one.text, round(one.probability, 3)) for one in span.alternatives] == [
        ("c", 0.6),
        ("b", 0.3),
        ("a", 0.1),
    ]
    assert (span.index, span.token_id, round(span.probability, 3)) == (0, 0, 0.1)
