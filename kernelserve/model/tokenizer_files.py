"""Gives the client a folder with tokenizer.json, tokenizer_config.json and the chat template."""

from __future__ import annotations

import hashlib
import logging
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from kernelserve.paths import cache_dir

__all__ = ["make_folder_once", "tokenizer_folder"]

logger = logging.getLogger(__name__)

_SOURCES = (
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tekken.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "config.json",
)


def tokenizer_folder(folder: Path) -> str:
    """Return the folder that holds the tokenizer of a model; empty if it has none.

    It is the model's own where that has a tokenizer.json, else one in the cache that transformers
    converts once and that is keyed by the contents it was made from.
    """
    if (folder / "tokenizer.json").is_file():
        return str(folder)
    sources = [folder / name for name in _SOURCES if (folder / name).is_file()]
    if all(path.name in ("config.json", "chat_template.jinja") for path in sources):
        logger.warning("%s has no tokenizer: only token ids can be used", folder)
        return ""
    digest = hashlib.sha256()
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    target = cache_dir() / "tokenizers" / digest.hexdigest()[:24]
    try:
        make_folder_once(target, lambda new: _convert(folder, new))
    except Exception as error:
        # A model without a usable tokenizer still works on token ids.
        logger.warning("the tokenizer of %s cannot be converted: %s", folder, error)
        return ""
    return str(target)


def make_folder_once(target: Path, fill: Callable[[Path], None]) -> None:
    """Make `target` with `fill` unless it is there; it appears whole or not at all."""
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        fill(new)
        new.chmod(0o755)
        new.rename(target)
    except OSError:
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _convert(folder: Path, new: Path) -> None:
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(str(folder), use_fast=True).save_pretrained(str(new))
    if not (new / "tokenizer.json").is_file():
        raise ValueError("transformers has no fast tokenizer for it")
