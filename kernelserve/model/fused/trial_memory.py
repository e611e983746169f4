"""Remembers which models our kernels were tried with, so that a start need not do it again."""

from __future__ import annotations

import hashlib
import logging
import os
from importlib.util import find_spec
from pathlib import Path

import msgspec

from kernelserve.model.fused.known_model import KnownModel
from kernelserve.paths import cache_dir, forget_unused, note_use
from kernelserve.version import __version__

__all__ = ["TrialMemory"]

logger = logging.getLogger(__name__)

_FORMAT = "2"
"""Another one whenever a KnownModel gets another meaning."""


class TrialMemory:
    """One file for each model that passed, with this library and these releases of everything that took part.

    What is tried is code, not weights: `fingerprint` is of a model's config, and the name of the library has a hash
    of its sources and of this CPU in it.
    """

    def __init__(self, fingerprint: str, library: Path) -> None:
        parts = (_FORMAT, library.stem, __version__, fingerprint)
        digest = hashlib.sha256("\0".join(parts).encode())
        for file in (("torch", "version.py"), ("transformers", "__init__.py")):
            digest.update(_content_of(*file))
        self._path = cache_dir() / "kernels" / "passed" / digest.hexdigest()[:24]

    def recall(self) -> KnownModel | None:
        """Return what is known of a model that has passed before, None if none has."""
        try:
            known = msgspec.json.decode(self._path.read_bytes(), type=KnownModel)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            logger.info("%s is no record of a model: %s", self._path, error)
            return None
        note_use(self._path)
        return known

    def remember(self, model: KnownModel) -> None:
        """Note that it has passed."""
        draft = self._path.with_suffix(f".{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(msgspec.json.encode(model))
            draft.replace(self._path)  # whole or not at all
            forget_unused(self._path.parent, "*")
        except OSError as error:
            logger.info("The next start will try the kernels again: %s", error)


def _content_of(package: str, name: str) -> bytes:
    """The file of a package that has its version in it. To import torch or transformers for that would take seconds."""
    spec = find_spec(package)
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent
    return b"" if folder is None else (folder / name).read_bytes()
