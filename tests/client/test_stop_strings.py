"""Stop strings: found wherever they end, never shown in part, and the same for any step size."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernelserve.client.answer_text import AnswerText
from kernelserve.client.detokenizer import IncrementalDetokenizer
from kernelserve.client.stop_strings import StopStrings
from tests.helpers.tokenizers import byte_fallback, byte_level


def answer(stops, *, include=False, min_tokens=0, kind=byte_level, prompt="a"):
    tokenizer = kind()
    return AnswerText(
        IncrementalDetokenizer(tokenizer, tokenizer.encode(prompt)),
        StopStrings(stops, include_in_output=include),
        min_tokens=min_tokens,
    )


def feed(text: AnswerText, ids: list[int]) -> tuple[str | None, int, list[str]]:
    """Return the stop string, how many tokens were read, and the pieces that were shown."""
    pieces = []
    for count, token_id in enumerate(ids, start=1):
        stop = text.feed(token_id)
        pieces.append(text.take_new())
        if stop is not None:
            return stop, count, pieces
    stop = text.finish()
    return stop, len(ids), [*pieces, text.take_new()]


def characters(string: str) -> list[int]:
    found = [byte_level().backend.token_to_id(c.replace(" ", "Ġ")) for c in string]
    ids = [i for i in found if i is not None]
    assert len(ids) == len(string)
    return ids


def test_t01_a_stop_string_inside_a_token_is_found():
    tokenizer = byte_level()
    token = tokenizer.encode(" DEF", add_special_tokens=False)
    assert len(token) == 1
    text = answer(["DE"])
    assert feed(text, [*characters("x"), *token, *characters("yz")])[:2] == ("DE", 2)
    assert text.text == "x "


def test_t01_the_stop_string_may_be_kept():
    tokenizer = byte_level()
    text = answer(["DE"], include=True)
    stop, _, pieces = feed(text, tokenizer.encode("x DEF", add_special_tokens=False))
    assert (stop, "".join(pieces), text.text) == ("DE", "x DE", "x DE")


def test_t02_no_part_of_a_stop_string_is_shown():
    text = answer(["DEFGHIJ"])
    stop, count, pieces = feed(text, characters("abcDEFGHIJKL"))
    assert (stop, count) == ("DEFGHIJ", 10)
    assert "".join(pieces) == "abc"


def test_t02_a_wrong_guess_comes_out_at_once():
    text = answer(["DEFGHIJ"])
    pieces = [text.take_new() for i in characters("abDEFx") if text.feed(i) is None]
    assert pieces == ["a", "b", "", "", "", "DEFx"]


def test_t04_min_tokens_delays_stop_strings():
    text = answer(["\n"], min_tokens=5)
    newline = byte_level().encode("\n", add_special_tokens=False)
    ids = characters("a") + newline * 3 + characters("b") + characters("c") + newline
    assert feed(text, ids)[:2] == ("\n", 7)
    assert text.text == "a\n\n\nbc"


@pytest.mark.parametrize("kind", [byte_level, byte_fallback])
def test_t04_a_match_before_the_minimum_never_fires_later(kind):
    tokenizer = kind()
    newline = tokenizer.encode("\n", add_special_tokens=False)[-1]
    word = tokenizer.encode("a", add_special_tokens=False)
    text = answer(["\n"], min_tokens=1, kind=kind)
    assert feed(text, [newline, *word, *word])[0] is None
    assert "\n" in text.text


def test_trap_36_list_order_wins_over_position():
    tokenizer = byte_level()
    token = tokenizer.encode(" DEF", add_special_tokens=False)
    text = answer(["F", "DE"])
    assert feed(text, token)[0] == "F"
    assert text.text == " DE"


def test_trap_36_a_match_may_straddle_tokens_and_the_tail_is_flushed():
    text = answer(["cd", "xyz"])
    assert feed(text, characters("abcd"))[0] == "cd"
    text = answer(["xyz"])
    stop, _, pieces = feed(text, characters("abxy"))
    assert (stop, pieces) == (None, ["a", "b", "", "", "xy"])


def test_a_newline_that_is_a_byte_token_stops_at_once():
    tokenizer = byte_fallback()
    ids = tokenizer.encode("a\nb", add_special_tokens=False)
    newline = [tokenizer.backend.id_to_token(i) for i in ids].index("<0x0A>")
    text = answer(["\n"], kind=byte_fallback)
    assert feed(text, ids)[:2] == ("\n", newline + 1)


def test_a_stop_string_in_the_flushed_tail_is_found():
    tokenizer = byte_level()
    half = tokenizer.encode("🔥", add_special_tokens=False)[:1]
    text = answer(["\ufffd"])
    assert feed(text, [*characters("ab"), *half])[0] == "\ufffd"
    assert text.text == "ab"


def oracle(string: str, stops: list[str], min_tokens: int, *, include: bool):
    """One character is one token: look at every prefix of the text."""
    for end in range(min_tokens + 1, len(string) + 1):
        for stop in stops:
            position = string.find(stop, min_tokens, end)
            if position >= 0:
                return stop, string[: position + len(stop) * include], end
    return None, string, len(string)


@settings(max_examples=250, deadline=None)
@given(
    string=st.text("ab", max_size=20),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    min_tokens=st.integers(0, 6),
    include=st.booleans(),
)
@example(string="aab", stops=["ab", "a"], min_tokens=1, include=False)
def test_stop_strings_match_a_brute_force_search(string, stops, min_tokens, include):
    text = answer(stops, include=include, min_tokens=min_tokens)
    stop, count, pieces = feed(text, characters(string))
    assert (stop, text.text, count) == oracle(string, stops, min_tokens, include=include)
    assert "".join(pieces) == text.text
