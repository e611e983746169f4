"""Remembers which models our kernels were tried with, so that a start does not do it again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from kernelserve.paths import cache_dir

if TYPE_CHECKING:
    from kernelserve.model.loaded_model import LoadedModel

__all__ = ["TrialMemory"]


class TrialMemory:
    """One empty file for each config that passed, with this library and these releases of torch and transformers.

    What is tried is the code, not the weights: the name of the library holds a hash of its sources.
    """

    def __init__(self, model: LoadedModel, library: Path) -> None:
        import torch
        import transformers

        digest = hashlib.sha256()
        for part in (
            library.stem,
            torch.__version__,
            transformers.__version__,
            type(model.module).__name__,
            model.hf_config.to_json_string(),
        ):
            digest.update(part.encode() + b"\0")
        self._path = cache_dir() / "kernels" / "passed" / digest.hexdigest()[:24]

    def passed(self) -> bool:
        """Whether such a model has passed before."""
        return self._path.exists()

    def remember(self) -> None:
        """Note that it has passed."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.touch()
