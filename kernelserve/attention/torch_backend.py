"""The reference backend: plain torch, any device. The other backends are tested against it."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernelserve.attention.layer_kv_cache import LayerKVCache
from kernelserve.attention.metadata import AttentionMetadata
from kernelserve.attention.step_plan import StepPlan

__all__ = ["TorchAttention"]

_PLAIN_ROWS = 256
"""Rows whose scores the plain path holds at once."""


class TorchAttention:
    """Gathers the K/V of each request into a contiguous piece and attends over it.

    Layout of keys and values: [num_blocks * block_size, Hkv, D]. Decoding requests go together in
    padded groups, the rows of a prompt in pieces of their own. A soft cap or sinks need the scores,
    so such layers take the plain path instead of the fused one.
    """

    def __init__(self) -> None:
        self._keys = _Gatherer()
        self._values = _Gatherer()

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
            keys = self._keys.gather(kv_cache.key, group.slots)
            values = self._values.gather(kv_cache.value, group.slots)
            output[group.rows] = _decode(query[group.rows], keys, values, group.mask, options)
        for piece in plan.prefills:
            keys = self._keys.gather(kv_cache.key, piece.slots)
            values = self._values.gather(kv_cache.value, piece.slots)
            rows = slice(piece.start, piece.end)
            output[rows] = _prefill(query[rows], keys, values, piece.mask, options)
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


class _Gatherer:
    """Copies slots of a cache into memory that it keeps: fresh memory costs more than the copy."""

    def __init__(self) -> None:
        self._buffer: torch.Tensor | None = None

    def gather(self, cache: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """[..., Hkv, D] at slots [...]; valid until the next call."""
        wanted = slots.numel() * cache.shape[1] * cache.shape[2]
        buffer = self._buffer
        if buffer is None or buffer.numel() < wanted or buffer.dtype != cache.dtype:
            with torch.inference_mode(mode=False):
                buffer = torch.empty(wanted, dtype=cache.dtype, device=cache.device)
            self._buffer = buffer
        rows = buffer[:wanted].view(slots.numel(), cache.shape[1], cache.shape[2])
        torch.index_select(cache, 0, slots.flatten(), out=rows)
        return rows.view(*slots.shape, *cache.shape[1:])


def _decode(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    options: _Options,
) -> torch.Tensor:
    """[n, H, Dk] over [n, L, Hkv, D], one row a request"""
    keys, values = keys.transpose(1, 2), values.transpose(1, 2)  # [n, Hkv, L, D]
    rows, num_heads, key_dim = queries.shape
    # The query heads that share a K/V head stand where queries of one text would: no K/V is copied.
    packed = queries.view(rows, keys.shape[1], -1, key_dim)  # [n, Hkv, G, Dk]
    if options.needs_scores:
        sinks = None if options.sinks is None else options.sinks.view(1, keys.shape[1], -1, 1)
        result = _plain(packed, keys, values, mask, options, sinks)
    else:
        result = F.scaled_dot_product_attention(
            packed, keys, values, attn_mask=mask, scale=options.scale
        )
    return result.reshape(rows, num_heads, -1)


def _prefill(
    rows: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    options: _Options,
) -> torch.Tensor:
    """[q, H, Dk] over [L, Hkv, D], the rows of one request"""
    queries = rows.transpose(0, 1)[None]  # [1, H, q, Dk]
    keys = _spread_heads(keys, queries.shape[1])  # [1, H, L, Dk]
    values = _spread_heads(values, queries.shape[1])
    if options.needs_scores:
        return _prefill_plain(queries, keys, values, mask, options)
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
