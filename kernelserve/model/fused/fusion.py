"""Puts our kernels in place of transformers' layers, if they give the same numbers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from kernelserve.errors import KernelBuildError
from kernelserve.kernels import PackedMatrix
from kernelserve.kernels.build import build_library
from kernelserve.kernels.cpu_kernels import CpuKernels
from kernelserve.model.fused.decoder_structure import DecoderStructure
from kernelserve.model.fused.fused_decoder import FusedDecoder
from kernelserve.model.fused.known_model import KnownModel
from kernelserve.model.fused.structure_reader import UnknownStructureError, read_structure
from kernelserve.model.fused.trial_memory import TrialMemory
from kernelserve.model.fused.weight_packer import WeightPacker
from kernelserve.model.fused.weight_source import WeightSource
from kernelserve.model.kv_cache_spec import LayerSpec
from kernelserve.model.model_defaults import config_eos_token_ids
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
    text. What our kernels take of the model is plain data and the weights in its files, at the trial too; so a model
    that has passed before needs nothing of transformers any more.
    """

    def __init__(self) -> None:
        pool = ThreadPoolExecutor(1, "kernelserve-build")
        self._library: Future[Path] = pool.submit(build_library)
        pool.shutdown(wait=False)
        self.known_layers: tuple[LayerSpec, ...] | None = None
        """Of a model that has passed and whose module is loaded without its matrices."""

    def recall(self, checkpoint: Checkpoint) -> KnownModel | None:
        """Return what is known of such a model. Comes before anything is read; waits for no compiler."""
        wait([self._library], _PATIENCE_S)
        if not self._library.done() or self._library.exception() is not None:
            return None  # `apply` says why
        return TrialMemory(checkpoint.fingerprint(), self._library.result()).recall()

    def decoder_of(
        self,
        known: KnownModel,
        checkpoint: Checkpoint,
        packed: Mapping[tuple[str, ...], PackedMatrix],
    ) -> FusedDecoder:
        """Return the decoder of a known model; `packed` is what has been packed already.

        Raises UnexpectedWeightError or KernelBuildError.
        """
        return self._make_decoder(known.structure, known.layers, WeightSource(checkpoint), packed)

    def leave_matrices(self, known: KnownModel, checkpoint: Checkpoint) -> None:
        """Let the module of a known model be loaded without its matrices, if the checkpoint can do that."""
        if checkpoint.leave_matrices():
            self.known_layers = known.layers

    def apply(self, model: LoadedModel, checkpoint: Checkpoint, stored: torch.dtype) -> None:
        """Let `model` run on our kernels, and free what it needs no more. Say in the log why not, if not.

        `stored` is what the weights of the checkpoint are best kept in.
        """
        source = WeightSource(checkpoint, model.module)
        try:
            structure = _known_structure(model)
            decoder = self._make_decoder(structure, model.kv_cache_spec.layers, source, {})
        except (UnknownStructureError, KernelBuildError) as reason:
            if self.known_layers is not None:
                raise
            _leave_to_torch(model, str(reason))
            return
        if self.known_layers is None:
            error = _error_of(model, decoder)
            if not error <= _TOLERANCE:
                _leave_to_torch(model, f"our kernels are off by {error:.2g}")
                return
            memory = TrialMemory(checkpoint.fingerprint(), self._library.result())
            memory.remember(_describe(model, structure, source, stored))
        _take_over(model, decoder, structure)

    def _make_decoder(
        self,
        structure: DecoderStructure,
        layers: tuple[LayerSpec, ...],
        source: WeightSource,
        packed: Mapping[tuple[str, ...], PackedMatrix],
    ) -> FusedDecoder:
        kernels = CpuKernels(self._library.result())
        packer = WeightPacker(kernels, source, structure.biased, packed)
        return FusedDecoder(kernels, structure, layers, packer)


def _leave_to_torch(model: LoadedModel, reason: str) -> None:
    logger.info("The layers run in torch: %s", reason)
    model.torch_reason = reason


def _known_structure(model: LoadedModel) -> DecoderStructure:
    structure = read_structure(model.module)
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


def _describe(
    model: LoadedModel, structure: DecoderStructure, source: WeightSource, stored: torch.dtype
) -> KnownModel:
    return KnownModel(
        model_type=model.model_type,
        vocab_size=model.vocab_size,
        max_model_len=model.max_model_len,
        max_model_len_reason=model.max_model_len_reason,
        eos_token_ids=config_eos_token_ids(model.hf_config),
        dtype=str(stored).removeprefix("torch."),
        layers=model.kv_cache_spec.layers,
        structure=structure,
        needs_module=model.vision is not None or not source.is_complete,
    )


def _take_over(model: LoadedModel, decoder: FusedDecoder, structure: DecoderStructure) -> None:
    model.fused = decoder
    for path in structure.matrices:
        # transformers' own modules cannot run any more.
        model.module.get_submodule(path).weight = nn.Parameter(torch.empty(0), requires_grad=False)
    if model.vision is not None:
        model.vision.embed_tokens = decoder.embed
    model.weight_bytes = decoder.weight_bytes + model.parameter_bytes
