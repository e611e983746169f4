"""What a model folder recommends: the tokens that end an answer, and sampling options."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["config_eos_token_ids", "eos_token_ids", "generation_defaults"]

_SAMPLING_FIELDS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


class _AddedToken(msgspec.Struct):
    id: int
    content: str


class _AddedTokens(msgspec.Struct):
    added_tokens: list[_AddedToken] = []


class _TokenizerModel(msgspec.Struct):
    vocab: dict[str, int] = {}


class _Vocabulary(msgspec.Struct):
    model: _TokenizerModel


def config_eos_token_ids(config: Any) -> tuple[int, ...]:
    """Return the end tokens that a transformers config names."""
    return tuple(_as_ids(getattr(config.get_text_config(), "eos_token_id", None)))


def eos_token_ids(folder: Path, tokenizer_dir: str, of_config: Sequence[int]) -> list[int]:
    """Return the end tokens of generation config, model config (given) and tokenizer, in this order."""
    found = [*_as_ids(_read(folder / "generation_config.json").get("eos_token_id")), *of_config]
    if tokenizer_dir:
        found += _tokenizer_eos(Path(tokenizer_dir))
    return list(dict.fromkeys(found))


def generation_defaults(folder: Path) -> dict[str, Any]:
    """Return the sampling options of the generation config, under the names of SamplingParams."""
    settings = _read(folder / "generation_config.json")
    if settings.get("do_sample") is False:
        return {}
    return {name: settings[name] for name in _SAMPLING_FIELDS if settings.get(name) is not None}


def _tokenizer_eos(folder: Path) -> list[int]:
    token = _read(folder / "tokenizer_config.json").get("eos_token")
    if isinstance(token, dict):
        token = token.get("content")
    if not token:
        return []
    try:
        content = (folder / "tokenizer.json").read_bytes()
        # Typed, so that a vocabulary of 100,000 and more is skipped and not made into objects.
        for added in msgspec.json.decode(content, type=_AddedTokens).added_tokens:
            if added.content == token:
                return [added.id]
        vocab = msgspec.json.decode(content, type=_Vocabulary).model.vocab
    except (OSError, msgspec.DecodeError):
        return []
    return [vocab[token]] if token in vocab else []


def _as_ids(value: Any) -> list[int]:
    if value is None:
        return []
    return [int(i) for i in value] if isinstance(value, list | tuple) else [int(value)]


def _read(path: Path) -> dict[str, Any]:
    """The object in a file that need not be there."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
