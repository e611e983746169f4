"""What is known of a model that our kernels have passed their trial with."""

from __future__ import annotations

from dataclasses import dataclass

from kernelserve.model.fused.decoder_structure import DecoderStructure
from kernelserve.model.kv_cache_spec import LayerSpec

__all__ = ["KnownModel"]


@dataclass(slots=True, frozen=True)
class KnownModel:
    """Plain data that follows from its config and transformers' code. With the files, it is all that is needed."""

    model_type: str
    vocab_size: int
    """Rows of the output head."""
    max_model_len: int
    max_model_len_reason: str
    eos_token_ids: tuple[int, ...]
    """Those that the config names."""
    dtype: str
    """What the weights are best kept in, by its name in torch."""
    layers: tuple[LayerSpec, ...]
    structure: DecoderStructure
    needs_module: bool
    """Something of it runs in transformers, or has weights that only transformers can read."""
