"""Loads a model that our kernels are known to run, without importing transformers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch

from kernelserve.errors import KernelBuildError
from kernelserve.model.fused.stored_parts import UnexpectedWeightError
from kernelserve.model.loaded_model import LoadedModel
from kernelserve.model.weights_fit import check_weights_fit, out_of_memory_at_weights

if TYPE_CHECKING:
    from kernelserve.model.checkpoint import Checkpoint
    from kernelserve.model.fused.fusion import Fusion
    from kernelserve.model.fused.known_model import KnownModel
    from kernelserve.model.head_start import PackedMatrices

__all__ = ["load_known_model"]

logger = logging.getLogger(__name__)


def load_known_model(
    checkpoint: Checkpoint, known: KnownModel, fusion: Fusion, packed: PackedMatrices
) -> LoadedModel | None:
    """Return the model on the CPU in float32; None if it must be loaded through transformers after all.

    `packed` is what has been packed of it already.
    Raises ModelFilesError and WeightsMemoryError.
    """
    device, dtype = torch.device("cpu"), torch.float32
    checkpoint.leave_matrices()
    numbers = check_weights_fit(checkpoint, dtype, device)
    try:
        with out_of_memory_at_weights(numbers):
            decoder = fusion.decoder_of(known, checkpoint, packed)
    except (UnexpectedWeightError, KernelBuildError) as reason:
        logger.info("The model is loaded through transformers after all: %s", reason)
        return None
    tokenizer_dir = checkpoint.tokenizer_dir()
    return LoadedModel(
        module=None,
        hf_config=None,
        dtype=dtype,
        device=device,
        model_type=known.model_type,
        vocab_size=known.vocab_size,
        max_model_len=known.max_model_len,
        max_model_len_reason=known.max_model_len_reason,
        tokenizer_dir=tokenizer_dir,
        eos_token_ids=checkpoint.eos_token_ids(known.eos_token_ids, tokenizer_dir),
        generation_defaults=checkpoint.generation_defaults(),
        known_layers=known.layers,
        fused=decoder,
    )
