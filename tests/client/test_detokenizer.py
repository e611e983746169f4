"""The detokenizer: what is released piece by piece is the one-shot decode."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelserve.client.detokenizer import IncrementalDetokenizer
from kernelserve.client.tokenizer import ClientTokenizer
from tests.helpers.tokenizers import byte_fallback, byte_level

KINDS = [byte_level, byte_fallback]
REPLACEMENT = "\ufffd"


def run(tokenizer: ClientTokenizer, prompt: list[int], ids: list[int], **options: Any) -> list[str]:
    detokenizer = IncrementalDetokenizer(tokenizer, prompt, **options)
    return [*(detokenizer.feed(i) for i in ids), detokenizer.flush()]


def one_shot(tokenizer: ClientTokenizer, prompt: list[int], ids: list[int], *, skip: bool) -> str:
    before = tokenizer.decode(prompt, skip_special_tokens=skip)
    whole = tokenizer.decode(prompt + ids, skip_special_tokens=skip)
    if not whole.startswith(before):  # a bad byte spoils the run of bytes that the prompt ends in
        return tokenizer.decode(ids, skip_special_tokens=skip)
    return whole[len(before) :]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["🔥ď你", "a\nb", " two  spaces ", "naïve café 你好 🔥🔥", "\n\n"])
def test_t10_a_character_of_several_tokens_comes_out_whole(kind, text):
    tokenizer = kind()
    prompt = tokenizer.encode("Here is:")
    ids = tokenizer.encode("x" + text, add_special_tokens=False)
    pieces = run(tokenizer, prompt, ids)
    assert "".join(pieces) == one_shot(tokenizer, prompt, ids, skip=True)
    assert "".join(pieces).endswith("x" + text)
    assert not any(REPLACEMENT in piece for piece in pieces)


@pytest.mark.parametrize("kind", KINDS)
def test_t10_a_character_that_is_cut_off_is_flushed_once(kind):
    tokenizer = kind()
    prompt = tokenizer.encode("Here")
    ids = tokenizer.encode("x🔥", add_special_tokens=False)[:-1]
    pieces = run(tokenizer, prompt, ids)
    assert not any(REPLACEMENT in piece for piece in pieces[:-1])
    assert "".join(pieces) == one_shot(tokenizer, prompt, ids, skip=True)
    assert pieces[-1].endswith(REPLACEMENT)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_t08_random_tokens_never_raise(kind, seed):
    tokenizer = kind()
    rng = random.Random(seed)
    prompt = tokenizer.encode("The capital of France is")
    ids = [rng.randrange(tokenizer.vocab_size + 20) for _ in range(500)]
    assert "".join(run(tokenizer, prompt, ids)) == one_shot(tokenizer, prompt, ids, skip=True)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_joined_pieces_are_the_one_shot_decode(kind, data):
    tokenizer = kind()
    token = st.integers(0, tokenizer.vocab_size + 3)
    bytes_ = sorted(tokenizer.byte_token_ids) or list(range(3, 259))
    ids = data.draw(st.lists(st.one_of(token, st.sampled_from(bytes_)), max_size=40))
    prompt = tokenizer.encode(data.draw(st.sampled_from(["", "a", "The end.\n", "你"])))
    skip = data.draw(st.booleans())
    pieces = run(tokenizer, prompt, ids, skip_special_tokens=skip)
    expected = one_shot(tokenizer, prompt, ids, skip=skip)
    assert "".join(pieces) == expected
    shown = ""
    for piece in pieces:
        shown += piece
        assert expected.startswith(shown)


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=60))
def test_any_text_survives_token_by_token(text):
    tokenizer = byte_level()
    ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    assert "".join(run(tokenizer, tokenizer.encode("a"), ids)) == text


def test_trap_37_the_first_word_after_a_prompt_keeps_its_space():
    tokenizer = byte_fallback()
    ids = tokenizer.encode("The capital of France", add_special_tokens=False)
    assert "".join(run(tokenizer, ids[:6], ids[6:])) == one_shot(
        tokenizer, ids[:6], ids[6:], skip=True
    )
    assert "".join(run(tokenizer, [], ids)) == "The capital of France"


def test_a_prompt_that_ends_in_half_a_character_is_not_repeated():
    tokenizer = byte_level()
    ids = tokenizer.encode("see 🔥 burn", add_special_tokens=False)
    start = ids.index(tokenizer.encode("🔥", add_special_tokens=False)[0])
    assert "".join(run(tokenizer, ids[: start + 2], ids[start + 2 :])) == "🔥 burn"
    assert "".join(run(tokenizer, ids[: start + 2], [])) == ""


def test_a_real_replacement_character_passes():
    tokenizer = byte_level()
    ids = tokenizer.encode(f"a{REPLACEMENT}b", add_special_tokens=False)
    assert "".join(run(tokenizer, ids, ids)) == f"a{REPLACEMENT}b"


def test_special_tokens_are_skipped_or_shown():
    tokenizer = byte_level()
    ids = tokenizer.encode("a<|im_end|>b", add_special_tokens=False)
    assert "".join(run(tokenizer, [], ids)) == "ab"
    assert "".join(run(tokenizer, [], ids, skip_special_tokens=False)) == "a<|im_end|>b"


@pytest.mark.parametrize("kind", KINDS)
def test_endless_garbage_is_released_in_the_end(kind):
    tokenizer = kind()
    bad = tokenizer.backend.token_to_id("<0xFF>") or tokenizer.backend.token_to_id("ÿ")
    detokenizer = IncrementalDetokenizer(tokenizer, tokenizer.encode("a"))
    pieces = [detokenizer.feed(bad) for _ in range(500)]
    assert sum(map(len, pieces)) > 400
    assert len("".join(pieces) + detokenizer.flush()) == 500


def test_a_run_of_byte_tokens_is_held_back_only_so_long():
    tokenizer = byte_fallback()
    ids = tokenizer.encode("é" * 100, add_special_tokens=False)
    pieces = run(tokenizer, tokenizer.encode("a"), ids)
    assert "".join(pieces).strip() == "é" * 100
    assert sum(1 for piece in pieces if piece) > 2
