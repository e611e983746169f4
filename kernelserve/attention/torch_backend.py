"""The reference backend: plain torch, any device. The other backends are tested against it."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernelserve.attention.layer_kv_cache import LayerKVCache
from kernelserve.attention.metadata import AttentionMetadata
from kernelserve.attention.step_plan import DecodeGroup, PrefillPiece, StepPlan

__all__ = ["TorchAttention"]

_PLAIN_ROWS = 256
"""Rows whose scores the plain path holds at once."""


class TorchAttention:
    """Gathers the K/V of each request into a contiguous piece and attends over it.

    Layout of keys and values: [num_blocks * block_size, Hkv, D]. Decoding requests go together in
    padded groups, the rows of a prompt in pieces of their own. A soft cap or sinks need the scores,
    so such layers take the plain path instead of the fused one.
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
        slots = num_blocks * block_size
        return LayerKVCache(
            torch.empty(slots, num_kv_heads, key_dim, dtype=dtype, device=device),
            torch.empty(slots, num_kv_heads, value_dim, dtype=dtype, device=device),
        )

    def write_kv(
        self,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: LayerKVCache,
        slot_mapping: torch.Tensor,
    ) -> None:
        kv_cache.key.index_copy_(0, slot_mapping, key)
        kv_cache.value.index_copy_(0, slot_mapping, value)

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
        plan = metadata.derive(
            ("torch", sliding_window, query.dtype),
            lambda: StepPlan.make(metadata, sliding_window, query.dtype),
        )
        options = _Options(scale, logits_soft_cap, sinks)
        num_tokens, num_heads, _ = query.shape
        output = query.new_empty(num_tokens, num_heads, kv_cache.value.shape[-1])
        for group in plan.decodes:
            output[group.rows] = _decode(query, kv_cache, group, options)
        for piece in plan.prefills:
            output[piece.start : piece.end] = _prefill(query, kv_cache, piece, options)
        return output


class _Options:
    """What every piece of a layer shares."""

    __slots__ = ("scale", "sinks", "soft_cap")

    def __init__(self, scale: float, soft_cap: float | None, sinks: torch.Tensor | None) -> None:
        self.scale = scale
        self.soft_cap = soft_cap
        self.sinks = sinks

    @property
    def needs_scores(self) -> bool:
        return self.soft_cap is not None or self.sinks is not None


def _decode(
    query: torch.Tensor, kv_cache: LayerKVCache, group: DecodeGroup, options: _Options
) -> torch.Tensor:
    keys = kv_cache.key[group.slots].transpose(1, 2)  # [n, Hkv, L, Dk]
    values = kv_cache.value[group.slots].transpose(1, 2)  # [n, Hkv, L, Dv]
    rows, num_heads, key_dim = query[group.rows].shape
    # The query heads that share a K/V head stand where queries of one text would: no K/V is copied.
    packed = query[group.rows].view(rows, keys.shape[1], -1, key_dim)  # [n, Hkv, G, Dk]
    if options.needs_scores:
        sinks = None if options.sinks is None else options.sinks.view(1, keys.shape[1], -1, 1)
        result = _plain(packed, keys, values, group.mask, options, sinks)
    else:
        result = F.scaled_dot_product_attention(
            packed, keys, values, attn_mask=group.mask, scale=options.scale
        )
    return result.reshape(rows, num_heads, -1)


def _prefill(
    query: torch.Tensor, kv_cache: LayerKVCache, piece: PrefillPiece, options: _Options
) -> torch.Tensor:
    queries = query[piece.start : piece.end].transpose(0, 1)[None]  # [1, H, q, Dk]
    keys = _spread_heads(kv_cache.key[piece.slots], queries.shape[1])  # [1, H, L, Dk]
    values = _spread_heads(kv_cache.value[piece.slots], queries.shape[1])
    if options.needs_scores:
        return _prefill_plain(queries, keys, values, piece.mask, options)
    mask = piece.mask
    result = F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask, is_causal=mask is None, scale=options.scale
    )
    return result[0].transpose(0, 1)


def _prefill_plain(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    options: _Options,
) -> torch.Tensor:
    num_rows = queries.shape[2]
    if mask is None:
        mask = torch.full((num_rows, num_rows), float("-inf"), device=queries.device).triu_(1)
    sinks = None if options.sinks is None else options.sinks.view(1, -1, 1, 1)
    parts = [
        _plain(
            queries[:, :, low : low + _PLAIN_ROWS],
            keys,
            values,
            mask[low : low + _PLAIN_ROWS],
            options,
            sinks,
        )
        for low in range(0, num_rows, _PLAIN_ROWS)
    ]
    return torch.cat(parts, dim=2)[0].transpose(0, 1)


def _plain(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    options: _Options,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attention as in the paper, in float32; `sinks` broadcasts to the scores but for the keys."""
    scores = torch.matmul(queries.float(), keys.float().transpose(-1, -2)) * options.scale
    if options.soft_cap is not None:
        scores = torch.tanh(scores / options.soft_cap) * options.soft_cap
    if mask is not None:
        scores = scores + mask
    if sinks is not None:
        scores = torch.cat([scores, sinks.float().expand(*scores.shape[:-1], 1)], dim=-1)
    weights = torch.softmax(scores, dim=-1)
    if sinks is not None:
        weights = weights[..., :-1]
    return torch.matmul(weights, values.float()).to(queries.dtype)


def _spread_heads(gathered: torch.Tensor, num_heads: int) -> torch.Tensor:
    """[L, Hkv, D] -> [1, H, L, D]"""
    groups = num_heads // gathered.shape[1]
    heads = gathered.transpose(0, 1)
    return (heads if groups == 1 else heads.repeat_interleave(groups, dim=0))[None]
