"""Remembers which models our kernels were tried with, so that a start need not do it again."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path

import msgspec

from kernelserve.model.kv_cache_spec import LayerSpec
from kernelserve.paths import cache_dir

__all__ = ["TrialMemory"]


class TrialMemory:
    """One file for each model that passed, with this library and these releases of torch and transformers.

    It holds the layers that attend, which transformers otherwise has to run once to tell. What is tried is code, not
    weights: `fingerprint` is of a model's config, and the name of the library has a hash of its sources in it.
    """

    def __init__(self, fingerprint: str, library: Path) -> None:
        parts = (library.stem, version("torch"), version("transformers"), fingerprint)
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
        self._path = cache_dir() / "kernels" / "passed" / digest

    def recall(self) -> tuple[LayerSpec, ...] | None:
        """Return the layers of a model that has passed before, None if none has."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=tuple[LayerSpec, ...])
        except (OSError, msgspec.DecodeError):
            return None

    def remember(self, layers: tuple[LayerSpec, ...]) -> None:
        """Note that it has passed."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_bytes(msgspec.json.encode(layers))
