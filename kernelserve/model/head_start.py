"""Begins to load a model while torch is being imported. Imports no torch itself."""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kernelserve.config import DEFAULT_MODEL, EngineConfig
from kernelserve.kernels import KernelLibrary, PackedMatrix
from kernelserve.kernels.build import find_library
from kernelserve.model.cpu_features import cpu_computes_bfloat16
from kernelserve.model.device_memory import free_main_memory
from kernelserve.model.embedded import find_embedded_gguf
from kernelserve.model.fused.known_model import KnownModel
from kernelserve.model.fused.shapes import matrix_shapes
from kernelserve.model.fused.stored_parts import join_stored
from kernelserve.model.fused.trial_memory import TrialMemory
from kernelserve.model.gguf_file import GgufFile
from kernelserve.model.gguf_matrices import GgufMatrices
from kernelserve.model.tokenizer_files import gguf_tokenizer_folder

__all__ = ["HeadStart"]

logger = logging.getLogger(__name__)

PackedMatrices = dict[tuple[str, ...], PackedMatrix]
"""Paths of the modules whose weights are in it -> matrix."""


@dataclass(slots=True, frozen=True)
class _Packed:
    path: Path
    known: KnownModel
    matrices: PackedMatrices


class HeadStart:
    """Packs the matrices of a GGUF model that our kernels are known to run, in a thread of its own.

    An import keeps one core busy, packing another: it holds no lock of Python's. Whatever goes wrong here comes up
    again where the model is loaded, and is said there.
    """

    def __init__(self, config: EngineConfig, on_tokenizer: Callable[[str], None]) -> None:
        """`on_tokenizer` hears, in the thread, where the tokenizer of such a model is."""
        pool = ThreadPoolExecutor(1, "kernelserve-head-start")
        self._packed: Future[_Packed | None] = pool.submit(_pack, config, on_tokenizer)
        pool.shutdown(wait=False)

    def take(self, path: Path, known: KnownModel) -> PackedMatrices:
        """Return what is packed of this model. Nothing, if it was another one, or none."""
        try:
            done = self._packed.result()
        except Exception as error:
            logger.info("No head start: %r", error)
            return {}
        if done is None or (done.path, done.known) != (path, known):
            return {}
        return done.matrices


def _pack(config: EngineConfig, on_tokenizer: Callable[[str], None]) -> _Packed | None:
    path, library = _local_gguf(config.model), find_library()
    if path is None or library is None or not _computes_in_float32_here(config):
        return None
    file = GgufFile(path)
    known = TrialMemory(file.header_digest(), library).recall()
    if known is None or known.needs_module or len(file.data) > free_main_memory():
        return None
    if (tokenizer := gguf_tokenizer_folder(file)).is_dir():
        on_tokenizer(str(tokenizer))
    _load_openmp_of_torch()
    kernels, source = KernelLibrary(library), GgufMatrices(file)
    num_threads = config.num_threads or max(1, (os.cpu_count() or 2) - 1)
    matrices = {}
    for shapes in matrix_shapes(known.structure, known.layers):
        stored = join_stored(source.stored_matrix, shapes)
        if stored is not None and known.structure.biased.isdisjoint(shapes):
            matrices[tuple(shapes)] = kernels.pack(stored, None, num_threads=num_threads)
    return _Packed(path, known, matrices)


def _local_gguf(model: str) -> Path | None:
    if model == DEFAULT_MODEL:
        return find_embedded_gguf()
    path = Path(model).expanduser()
    return path.resolve() if path.suffix.lower() == ".gguf" and path.is_file() else None


def _computes_in_float32_here(config: EngineConfig) -> bool:
    """A guess: whether there is a GPU, only torch can tell."""
    if not config.fuse_layers or config.device not in ("auto", "cpu"):
        return False
    if config.device == "auto" and Path("/proc/driver/nvidia").exists():
        return False
    return config.dtype == "float32" or (config.dtype == "auto" and not cpu_computes_bfloat16())


def _load_openmp_of_torch() -> None:
    """Of two libraries with the same name the first one serves both; let it be the one that torch was tested with."""
    spec = find_spec("torch")
    if spec is not None and spec.origin is not None:
        for library in Path(spec.origin).with_name("lib").glob("libgomp*.so*"):
            ctypes.CDLL(str(library))
