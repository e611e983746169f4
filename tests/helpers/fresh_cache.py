"""A cache that remembers nothing but the compiled kernels, which take long to make."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelserve.kernels.build import build_library

__all__ = ["use_fresh_cache"]


def use_fresh_cache(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Let kernelserve use `folder` as its cache from now on; return the folder of what passed a trial."""
    library = build_library()
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / library.name).symlink_to(library)
    patch.setenv("KERNELSERVE_CACHE_DIR", str(folder))
    return folder / "kernels" / "passed"
