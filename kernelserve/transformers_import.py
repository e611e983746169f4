"""Makes importing transformers a second faster, by remembering what it finds out each time.

transformers reads all of its 1,700 model files when it is imported, and again with the first model, to learn which
class is in which. The answers are kept in our cache for as long as the files are the same. Nothing else of
transformers is touched, and a release that does this differently is imported as it comes.
"""

from __future__ import annotations

import hashlib
import logging
import marshal
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelserve.paths import cache_dir, forget_unused, note_use

__all__ = ["remember_model_index"]

logger = logging.getLogger(__name__)

_MODULE = "transformers.utils.import_utils"
_FUNCTION = "define_import_structure"
_Scan = Callable[..., Any]


def remember_model_index() -> None:
    """Let the next import of transformers use and keep the index. Does nothing after that import."""
    if "transformers" not in sys.modules:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds one module, once, with a loader that wraps one function of it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        scan = getattr(module, _FUNCTION, None)
        if callable(scan):
            setattr(module, _FUNCTION, _remembering(scan))


def _remembering(scan: _Scan) -> _Scan:
    def define_import_structure(module_path: Any, prefix: str | None = None) -> Any:
        path = Path(module_path)
        folder = path.parent if path.suffix else path
        if folder.name != "models":  # one model: a few files
            return scan(module_path, prefix=prefix)
        index = _index_file(folder, prefix)
        try:
            found = marshal.loads(index.read_bytes())
            note_use(index)
            return found
        except (OSError, EOFError, ValueError, TypeError):
            found = scan(module_path, prefix=prefix)
            _keep(index, found)
            return found

    return define_import_structure


def _index_file(folder: Path, prefix: str | None) -> Path:
    """A name that is another one after any installation: it depends on the times of the folder and the package."""
    times = [path.stat().st_mtime_ns for path in (folder, folder.parent / "__init__.py")]
    key = f"{folder} {prefix} {times} {sys.implementation.cache_tag} {marshal.version}"
    return cache_dir() / f"transformers-{hashlib.sha256(key.encode()).hexdigest()[:16]}.index"


def _keep(index: Path, found: Any) -> None:
    draft = index.with_suffix(f".{os.getpid()}")
    try:
        draft.write_bytes(marshal.dumps(found))
        draft.replace(index)
        forget_unused(index.parent, "transformers-*.index")
    except (OSError, ValueError) as error:
        logger.debug("The index of transformers cannot be kept: %s", error)
