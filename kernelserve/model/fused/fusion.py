"""Puts our kernels in place of transformers' layers, if they give the same numbers."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

from kernelserve.errors import KernelBuildError
from kernelserve.kernels import CpuKernels
from kernelserve.kernels.build import build_library
from kernelserve.model.fused.decoder_structure import DecoderStructure, UnknownStructureError
from kernelserve.model.fused.fused_decoder import FusedDecoder
from kernelserve.model.fused.trial_memory import TrialMemory
from kernelserve.model.fused.weight_packer import WeightPacker
from kernelserve.model.kv_cache_spec import LayerSpec
from kernelserve.model.trial_run import relative_error, trial_logits

if TYPE_CHECKING:
    from kernelserve.model.checkpoint import Checkpoint
    from kernelserve.model.loaded_model import LoadedModel

__all__ = ["Fusion"]

logger = logging.getLogger(__name__)

_PATIENCE_S = 0.5
"""A library that the cache has is there within this time; else it is being compiled."""
_TOLERANCE = 1e-4
_PANEL = 16
_MAX_HEAD_DIM, _MAX_GROUP = 256, 16
"""Limits of cpu/attention.h."""


class Fusion:
    """One attempt, while a model is loaded. Making one lets the compiler run beside the imports.

    Whatever the structure of a model looks like, its own code is asked: both must give the same logits for a short
    text. A model that has passed before needs none of its own matrices any more: the kernels read those of the file.
    """

    def __init__(self) -> None:
        pool = ThreadPoolExecutor(1, "kernelserve-build")
        self._library: Future[Path] = pool.submit(build_library)
        pool.shutdown(wait=False)
        self._kernels: CpuKernels | None = None
        self.known_layers: tuple[LayerSpec, ...] | None = None
        """Of a model that has passed and is loaded without its matrices."""

    def prepare(self, checkpoint: Checkpoint) -> None:
        """Leave the matrices out, if such a model has passed. Comes before anything is read; waits for no compiler."""
        wait([self._library], _PATIENCE_S)
        if not self._library.done() or self._library.exception() is not None:
            return
        try:
            kernels = CpuKernels(self._library.result())
        except KernelBuildError:
            return  # `apply` says it
        layers = TrialMemory(checkpoint.fingerprint(), self._library.result()).recall()
        if layers is not None and checkpoint.leave_matrices():
            self._kernels, self.known_layers = kernels, layers

    def apply(self, model: LoadedModel, checkpoint: Checkpoint) -> None:
        """Let `model` run on our kernels, and free what it needs no more. Say in the log why not, if not."""
        try:
            structure = _known_structure(model)
            library = self._library.result()
            kernels = self._kernels or CpuKernels(library)
        except (UnknownStructureError, KernelBuildError) as reason:
            if self.known_layers is not None:
                raise
            logger.info("The layers run in torch: %s", reason)
            return
        packer = WeightPacker(kernels, model.module, checkpoint.stored_matrix)
        decoder = FusedDecoder(kernels, structure, model.kv_cache_spec.layers, packer)
        if self.known_layers is None:
            error = _error_of(model, decoder)
            if not error <= _TOLERANCE:
                logger.warning("The layers run in torch: our kernels are off by %.2g", error)
                return
            memory = TrialMemory(checkpoint.fingerprint(), library)
            memory.remember(model.kv_cache_spec.layers)
        _take_over(model, decoder)


def _known_structure(model: LoadedModel) -> DecoderStructure:
    structure = DecoderStructure.of(model.module)
    if model.vision is not None and (model.vision.uses_mrope or model.vision.bidirectional):
        raise UnknownStructureError(
            "its images need positions or masks that the kernels do not know"
        )
    layers = model.kv_cache_spec.layers
    if len({(spec.num_heads, spec.num_kv_heads, spec.key_dim) for spec in layers}) > 1:
        raise UnknownStructureError("its layers have different heads")
    for spec in layers:
        _check_attention(spec)
    return structure


def _check_attention(spec: LayerSpec) -> None:
    if spec.has_sinks:
        raise UnknownStructureError("its attention has sinks")
    if spec.key_dim != spec.value_dim or spec.key_dim % _PANEL or spec.key_dim > _MAX_HEAD_DIM:
        raise UnknownStructureError(
            f"a head has {spec.key_dim} numbers in a key and {spec.value_dim} in a value; the kernels know equal "
            f"multiples of {_PANEL} up to {_MAX_HEAD_DIM}"
        )
    if spec.num_heads // spec.num_kv_heads > _MAX_GROUP:
        raise UnknownStructureError(
            f"{spec.num_heads} query heads share {spec.num_kv_heads} K/V heads; the kernels know up to "
            f"{_MAX_GROUP} for one"
        )


def _error_of(model: LoadedModel, decoder: FusedDecoder) -> float:
    """How far the kernels are from the model's own code, which still has its weights."""
    expected = trial_logits(model)
    model.fused = decoder
    got = trial_logits(model)
    model.fused = None
    return relative_error(got, expected)


def _take_over(model: LoadedModel, decoder: FusedDecoder) -> None:
    model.fused = decoder
    decoder.release_originals()
    if model.vision is not None:
        model.vision.embed_tokens = decoder.embed
    model.weight_bytes = decoder.weight_bytes + model.parameter_bytes
