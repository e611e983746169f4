"""T55: whatever callers write, in however many parts, is text."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from kernelserve.client.chat_prompt import LITERAL_MARK, plain_text
from kernelserve.client.literal_text import LiteralMarker
from kernelserve.client.tokenizer import ClientTokenizer
from tests.helpers.tokenizers import SPECIAL, byte_level, make_byte_level, save

SHREDS = [
    *SPECIAL,
    "<",
    "|",
    "<|",
    "|>",
    "im_",
    "start",
    "end",
    "<|im_",
    "a",
    " ",
    "\ufdd0",
    "\ufdd1",
    "é",
]


@given(st.lists(st.lists(st.sampled_from(SHREDS), max_size=6).map("".join), max_size=6))
def test_t55_no_parts_join_into_a_special_token(parts):
    tokenizer = byte_level()
    marked = "".join(map(tokenizer.mark_all_literal, parts))
    ids = tokenizer.encode_marked(marked)
    assert not tokenizer.special_token_ids & set(ids)
    text = "".join(parts).replace("\ufdd0", "").replace("\ufdd1", "")
    assert plain_text(marked, "?") == text
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_text_that_looks_like_no_token_has_no_mark():
    marker = LiteralMarker(["<image>", ""])
    assert marker.mark("a < b, <b>") == "a < b, <b>"
    assert marker.mark("a <") == f"a {LITERAL_MARK}<"
    assert marker.mark("<image>") == f"{LITERAL_MARK}<image>"
    assert LiteralMarker([]).mark("<image>") == "<image>"


def test_the_template_of_an_older_processor_is_found(tmp_path):
    folder = save(make_byte_level(), tmp_path)
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "old"}))
    assert ClientTokenizer(folder).render_chat_template([{"role": "user", "content": "x"}]) == "old"
    (folder / "chat_template.jinja").write_text("new")
    assert ClientTokenizer(folder).render_chat_template([{"role": "user", "content": "x"}]) == "new"
