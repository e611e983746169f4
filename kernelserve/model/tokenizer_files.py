"""Gives the client a folder with tokenizer.json, tokenizer_config.json and the chat template."""

from __future__ import annotations

import hashlib
import logging
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelserve.paths import cache_dir

if TYPE_CHECKING:
    from kernelserve.model.gguf_file import GgufFile

__all__ = ["convert_tokenizer", "gguf_tokenizer_folder", "make_folder_once", "tokenizer_key"]

logger = logging.getLogger(__name__)

_VOCABULARIES = (
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tekken.json",
)
_SETTINGS = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "config.json",
)


def tokenizer_key(folder: Path) -> str:
    """Return a name for the tokenizer that the files of a model folder make; empty if none."""
    if not any((folder / name).is_file() for name in _VOCABULARIES):
        return ""
    digest = hashlib.sha256()
    for name in _VOCABULARIES + _SETTINGS:
        if (folder / name).is_file():
            digest.update(name.encode() + b"\0" + (folder / name).read_bytes())
    return digest.hexdigest()[:24]


def gguf_tokenizer_folder(file: GgufFile) -> Path:
    """Return where the tokenizer of a .gguf file is kept once it has been converted."""
    return cache_dir() / "tokenizers" / f"gguf-{file.header_digest()[:24]}"


def convert_tokenizer(target: Path, load: Callable[[], Any]) -> str:
    """Return `target` with the tokenizer of `load` saved in it, made once; empty if that fails.

    A model without a usable tokenizer still works on token ids, so this is no error.
    """

    def save(new: Path) -> None:
        load().save_pretrained(str(new))
        if not (new / "tokenizer.json").is_file():
            raise ValueError("transformers has no fast tokenizer for it")

    try:
        make_folder_once(target, save)
    except Exception as error:
        logger.warning("no tokenizer, only token ids can be used: %s", error)
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
        try:
            new.rename(target)
        except OSError:
            # Another process was first: its folder is as good as ours.
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
