"""Puts `GpuDecoder` in place of transformers' layers, if it gives the same numbers."""

from __future__ import annotations

import logging

import torch

from kernelserve.attention import AttentionBackend
from kernelserve.attention.triton_backend import TritonAttention
from kernelserve.model.fused.gpu_decoder import GpuDecoder
from kernelserve.model.fused.structure_reader import UnknownStructureError, read_structure
from kernelserve.model.loaded_model import LoadedModel
from kernelserve.model.trial_run import relative_error, trial_logits

__all__ = ["fuse_for_gpu"]

logger = logging.getLogger(__name__)

_TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.01, torch.bfloat16: 0.05}
"""What rounding makes of the same numbers in another order; a scale that is left out is off by more."""


def fuse_for_gpu(model: LoadedModel, backend: AttentionBackend, *, block_size: int) -> None:
    """Let `model` run its layers on `backend`, a TritonAttention, and our kernels. Say why not, if not.

    Both ways compute a short text, on the device, in the dtype and in blocks of the size that will be used.
    """
    assert isinstance(backend, TritonAttention)
    try:
        structure = read_structure(model.module)
        _check_attention(model)
    except UnknownStructureError as reason:
        _stay(model, str(reason))
        return
    decoder = GpuDecoder(model.module, structure, model.kv_cache_spec.layers, backend)
    expected = trial_logits(model, backend, block_size=block_size)
    model.fused = decoder
    error = relative_error(trial_logits(model, backend, block_size=block_size), expected)
    if not error <= _TOLERANCE[model.dtype]:
        model.fused = None
        _stay(model, f"our kernels are off by {error:.2g}")


def _check_attention(model: LoadedModel) -> None:
    if model.vision is not None and model.vision.uses_mrope:
        raise UnknownStructureError("its images need positions that the kernels do not know")
    layers = model.kv_cache_spec.layers
    if len({(spec.num_heads, spec.num_kv_heads, spec.key_dim) for spec in layers}) > 1:
        raise UnknownStructureError("its layers have different heads")
    for spec in layers:
        if spec.has_sinks:
            raise UnknownStructureError("its attention has sinks")
        if spec.key_dim != spec.value_dim:
            raise UnknownStructureError("its keys and values have different sizes")


def _stay(model: LoadedModel, reason: str) -> None:
    logger.info("The layers run in torch: %s", reason)
    model.torch_reason = reason
