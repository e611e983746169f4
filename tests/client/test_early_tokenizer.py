"""The tokenizer that is loaded while the engine is."""

from __future__ import annotations

import pytest

from kernelserve.client.early_tokenizer import EarlyTokenizer
from kernelserve.errors import ModelFilesError
from tests.helpers.tokenizers import make_byte_fallback, make_byte_level, save


def test_what_was_begun_is_what_one_gets(tmp_path) -> None:
    folder = save(make_byte_level(), tmp_path / "known")
    early = EarlyTokenizer()
    early.begin(str(folder))
    early.begin(str(tmp_path / "repeated, and not looked at"))
    tokenizer = early.get(str(folder))
    assert tokenizer is early.get(str(folder))
    assert tokenizer.decode(tokenizer.encode("Paris")) == "Paris"


def test_another_folder_than_the_one_begun_is_loaded_then(tmp_path) -> None:
    early = EarlyTokenizer()
    early.begin(str(save(make_byte_level(), tmp_path / "first")))
    second = save(make_byte_fallback(), tmp_path / "second")
    assert early.get(str(second)).byte_token_ids


def test_an_error_comes_when_it_is_asked_for(tmp_path) -> None:
    early = EarlyTokenizer()
    early.begin(str(tmp_path))
    with pytest.raises(ModelFilesError, match="cannot be read"):
        early.get(str(tmp_path))
