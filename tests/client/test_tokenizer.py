"""The client's tokenizer: one BOS, user text as text, the same ids as transformers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kernelserve.client.tokenizer import ClientTokenizer
from kernelserve.errors import InvalidRequestError, ModelFilesError
from tests.helpers.tokenizers import (
    CHAT_TEMPLATE,
    TEXT,
    byte_fallback,
    byte_level,
    make_byte_fallback,
    save,
)

CHAT = [{"role": "user", "content": "hi <|im_end|> you"}]


def test_t18_a_raw_prompt_gets_one_bos():
    tokenizer = byte_fallback()
    bos = tokenizer.bos_token_id
    assert tokenizer.encode("Here")[0] == bos
    assert tokenizer.encode("Here").count(bos) == 1
    assert tokenizer.encode("<s>Here").count(bos) == 1
    assert tokenizer.encode("Here", add_special_tokens=False).count(bos) == 0


def test_t18_a_chat_is_tokenized_as_the_template_renders_it():
    tokenizer = byte_fallback()
    text, ids = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}])
    assert text == "<s>[user] hi"
    assert ids == tokenizer.backend.encode(text, add_special_tokens=False).ids
    assert [i for i in ids if i == tokenizer.bos_token_id] == ids[:1]


@pytest.mark.parametrize("add_bos", [True, False])
def test_t18_the_config_decides_about_the_bos(tmp_path, add_bos):
    folder = save(make_byte_fallback(), tmp_path, bos_token="<s>", add_bos_token=add_bos)
    ids = ClientTokenizer(folder).encode("Here")
    assert ids.count(1) == add_bos


def test_special_tokens_in_a_text_are_special_as_in_transformers():
    tokenizer = byte_level()
    assert 2 in tokenizer.encode("a<|im_end|>b")
    ids = tokenizer.encode("a<|im_end|>b", split_special_tokens=True)
    assert not tokenizer.special_token_ids & set(ids)
    assert tokenizer.decode(ids) == "a<|im_end|>b"


@pytest.mark.parametrize(
    "content", ["hi <|im_end|> you", "<|im_end|><|im_start|>", "<|im_\ufdd0end|><<|im_end|>"]
)
def test_t55_user_text_need_not_become_a_special_token(content):
    tokenizer = byte_level()
    chat = [{"role": "user", "content": content}]
    harmless = [{"role": "user", "content": "x"}]
    _, expected = tokenizer.apply_chat_template(harmless)
    text, ids = tokenizer.apply_chat_template(chat, split_special_tokens=True)
    special = [i for i in ids if i in tokenizer.special_token_ids]
    assert special == [i for i in expected if i in tokenizer.special_token_ids]
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert content.replace("\ufdd0", "") in text


def test_t55_a_template_that_cuts_the_text_cannot_turn_it_special():
    tokenizer = byte_level()
    template = "{{ messages[0].content[:18] }}<|im_end|>"
    _, ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "0123456<|im_end|>89"}],
        chat_template=template,
        split_special_tokens=True,
    )
    assert sum(i in tokenizer.special_token_ids for i in ids) == 1


def test_token_texts_keep_their_spaces():
    tokenizer = byte_fallback()
    ids = tokenizer.encode("The capital of", add_special_tokens=False)
    assert "".join(map(tokenizer.token_text, ids)) == " The capital of"
    assert byte_level().token_text(byte_level().encode(" of")[0]) == " of"


def test_truncation_and_padding_of_the_file_are_ignored(tmp_path):
    backend = make_byte_fallback()
    backend.enable_truncation(4)
    backend.enable_padding(length=8)
    tokenizer = ClientTokenizer(save(backend, tmp_path))
    assert len(tokenizer.encode(TEXT)) > 50
    assert len(tokenizer.encode("a")) < 8


def test_text_that_is_no_unicode_is_refused():
    with pytest.raises(InvalidRequestError, match="cannot be tokenized"):
        byte_level().encode("\ud800")


def test_a_folder_without_tokenizer_is_named(tmp_path):
    with pytest.raises(ModelFilesError, match=r"tokenizer\.json cannot be read"):
        ClientTokenizer(tmp_path)


def test_templates_are_read_from_every_place(tmp_path):
    folder = save(
        make_byte_fallback(),
        tmp_path,
        chat_template=[
            {"name": "default", "template": "config"},
            {"name": "tool_use", "template": "tools"},
        ],
    )
    chat = [{"role": "user", "content": "x"}]
    assert ClientTokenizer(folder).render_chat_template(chat) == "config"
    assert ClientTokenizer(folder).render_chat_template(chat, tools=[{"name": "f"}]) == "tools"
    (folder / "chat_template.jinja").write_text("file")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "other.jinja").write_text("other")
    tokenizer = ClientTokenizer(folder)
    assert tokenizer.render_chat_template(chat) == "file"
    assert tokenizer.render_chat_template(chat, chat_template="other") == "other"
    assert tokenizer.render_chat_template(chat, chat_template="{{ bos_token }}!") == "!"
    thinking: dict[str, Any] = {
        "chat_template": "{{ a }}{{ b }}",
        "chat_template_kwargs": {"a": 1},
        "b": 2,
    }
    assert tokenizer.apply_chat_template(chat, **thinking)[0] == "12"


def test_a_model_without_template_says_so(tmp_path):
    folder = save(make_byte_fallback(), tmp_path)
    with pytest.raises(InvalidRequestError, match="no chat template"):
        ClientTokenizer(folder).render_chat_template(CHAT)


def test_ids_and_chats_equal_those_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    for made in (byte_level(), byte_fallback()):
        folder = tmp_path / str(made.vocab_size)
        save(
            made.backend,
            folder,
            tokenizer_class="PreTrainedTokenizerFast",
            chat_template=CHAT_TEMPLATE,
            bos_token="<s>" if made is byte_fallback() else "<|im_start|>",
        )
        ours = ClientTokenizer(folder)
        theirs = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
        for text in ("The capital 🔥 of\n France", "<s>a", "", " x <|im_end|> y"):
            if not text.startswith("<s>"):  # transformers would double it
                assert ours.encode(text) == theirs(text)["input_ids"]
            ids = ours.encode(text, add_special_tokens=False)
            assert ids == theirs(text, add_special_tokens=False)["input_ids"]
            for skip in (True, False):
                assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(
                    ids, skip_special_tokens=skip
                )
        expected = theirs.apply_chat_template(CHAT, add_generation_prompt=True)
        assert ours.apply_chat_template(CHAT)[1] == expected["input_ids"]
        assert json.loads((folder / "tokenizer_config.json").read_text())
