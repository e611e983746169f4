"""The contract between a model and whatever computes its attention."""

from __future__ import annotations

from typing import Protocol

import torch

from kernelserve.attention.layer_kv_cache import LayerKVCache
from kernelserve.attention.metadata import AttentionMetadata

__all__ = ["AttentionBackend"]


class AttentionBackend(Protocol):
    """Allocates, writes and reads the paged KV cache of a layer.

    In each layer the model calls `write_kv` for all rows of the step and then `forward`: requests
    of one step may share blocks, so every K/V must be in the cache before any is read.
    """

    def allocate(
        self,
        num_blocks: int,
        *,
        block_size: int,
        num_kv_heads: int,
        key_dim: int,
        value_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> LayerKVCache:
        """Return the memory of one layer, num_blocks * block_size slots, uninitialised.

        It takes exactly slots * num_kv_heads * (key_dim + value_dim) elements.
        """
        ...

    def write_kv(
        self,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: LayerKVCache,
        slot_mapping: torch.Tensor,
    ) -> None:
        """Store key [T, Hkv, Dk] and value [T, Hkv, Dv] at slot_mapping [T]."""
        ...

    def forward(
        self,
        query: torch.Tensor,
        kv_cache: LayerKVCache,
        metadata: AttentionMetadata,
        *,
        scale: float,
        sliding_window: int | None = None,
        logits_soft_cap: float | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return causal attention of query [T, H, Dk] over the cache, [T, H, Dv].

        H is a multiple of Hkv; heads h * H/Hkv to (h+1) * H/Hkv read K/V head h. The row at
        position p sees positions k with k <= p, and with a window k > p - sliding_window. Scores
        are scale * q.k, then with a cap c: c * tanh(score / c). `sinks` [H] adds one score a head
        that takes its share of the softmax and has no value. Slots that the request has not written
        are never read into the result, whatever they hold.
        """
        ...
