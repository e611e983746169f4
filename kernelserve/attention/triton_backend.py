"""The backend for GPUs: Triton kernels that read the paged cache where it is. Importing it imports Triton."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from kernelserve.attention.layer_kv_cache import LayerKVCache
from kernelserve.attention.metadata import AttentionMetadata
from kernelserve.attention.tile_shape import TileShape, power_of_two
from kernelserve.attention.triton_kernels.attend import attend
from kernelserve.attention.triton_kernels.merge import merge
from kernelserve.attention.triton_kernels.rotate import rotate_and_write
from kernelserve.attention.triton_kernels.write import write_kv
from kernelserve.attention.work_plan import Launch, WorkPlan

__all__ = ["TritonAttention", "launching_on"]

_MERGED_AT_ONCE = 16
_WRITTEN_AT_ONCE = 32
"""Heads of tokens that one program writes."""
_ROTATED_AT_ONCE = 16
"""Tokens of which one program rotates or writes a head."""


class TritonAttention:
    """Attention without a gathered copy, for any number of rows a request.

    Layout of keys and values: [num_blocks, Hkv, block_size, D], so that what a program reads of a block is contiguous
    (4 KB of a block of 16, at 128 numbers of 16 bits). With TRITON_INTERPRET=1 it runs on a CPU, slowly.
    """

    def __init__(self) -> None:
        self._parts = torch.empty(0)

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
        shape = (num_blocks, num_kv_heads, block_size)
        return LayerKVCache(
            torch.empty(*shape, key_dim, dtype=dtype, device=device),
            torch.empty(*shape, value_dim, dtype=dtype, device=device),
        )

    def write_kv(
        self,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: LayerKVCache,
        slot_mapping: torch.Tensor,
    ) -> None:
        key, value = _with_dense_rows(key), _with_dense_rows(value)
        sizes = _Sizes.of(kv_cache)
        heads_pad = power_of_two(sizes.kv_heads)
        tokens = max(1, _WRITTEN_AT_ONCE // heads_pad)
        with launching_on(key.device):
            write_kv[(-(-len(key) // tokens),)](
                key, value, kv_cache.key, kv_cache.value, slot_mapping, len(key),
                key.stride(0), key.stride(1), value.stride(0), value.stride(1),
                KV_HEADS=sizes.kv_heads, HEADS_PAD=heads_pad, TOKENS=tokens, BLOCK_SIZE=sizes.block_size,
                KEY_DIM=sizes.key_dim, KEY_PAD=sizes.key_pad, VALUE_DIM=sizes.value_dim, VALUE_PAD=sizes.value_pad,
            )  # fmt: skip

    def rotate_and_write(
        self,
        qkv: torch.Tensor,
        kv_cache: LayerKVCache,
        slot_mapping: torch.Tensor,
        positions: torch.Tensor,
        angles: tuple[torch.Tensor, torch.Tensor],
        head_norms: tuple[torch.Tensor, torch.Tensor] | None,
        eps: float,
    ) -> torch.Tensor:
        """Return the queries [T, H, D] of qkv [T, (H + 2 Hkv) * D], and write its keys and values as `write_kv` does.

        Queries and keys are normed, if there are weights [D] for that, and then turned by positions [T]: `angles` are
        cosines and sines, float32 [positions, D/2 or less].
        """
        qkv, sizes = qkv.contiguous(), _Sizes.of(kv_cache)
        heads = qkv.shape[1] // sizes.key_dim - 2 * sizes.kv_heads
        query = qkv.new_empty(len(qkv), heads, sizes.key_dim)
        of_queries, of_keys = head_norms or (qkv, qkv)
        grid = (-(-len(qkv) // _ROTATED_AT_ONCE), heads + 2 * sizes.kv_heads)
        with launching_on(qkv.device):
            rotate_and_write[grid](
                qkv, query, kv_cache.key, kv_cache.value, slot_mapping, positions, *angles, of_queries, of_keys,
                len(qkv), eps,
                HEADS=heads, KV_HEADS=sizes.kv_heads, DIM=sizes.key_dim, PAD=sizes.key_pad, HALF=angles[0].shape[1],
                BLOCK_SIZE=sizes.block_size, TOKENS=_ROTATED_AT_ONCE, HAS_NORMS=head_norms is not None,
            )  # fmt: skip
        return query

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
        query = _with_dense_rows(query)
        sizes = _Sizes.of(kv_cache)
        group = query.shape[1] // sizes.kv_heads
        elements = sizes.key_pad + sizes.value_pad
        few = TileShape.few(group, elements, query.dtype)
        many = TileShape.many(group, elements, query.dtype)
        plan = metadata.derive(
            ("triton", sliding_window, few, many),
            lambda: WorkPlan.make(metadata, few, many, sliding_window),
        )
        layer = _Layer(kv_cache, sizes, plan, scale, sliding_window, logits_soft_cap, sinks)
        output = query.new_empty(*query.shape[:2], sizes.value_dim)
        with launching_on(query.device):
            for launch in plan.launches:
                parts = self._reserve(launch.num_parts * query.shape[1], sizes, query.device)
                layer.attend(query, output, metadata, launch, parts)
                if launch.num_parts:
                    layer.merge(output, launch, parts)
        return output

    def _reserve(self, rows: int, sizes: _Sizes, device: torch.device) -> _Parts:
        """Memory for the partial results of `rows` heads of tokens. It is kept: all layers need as much."""
        wanted = rows * (sizes.value_dim + 1)
        if self._parts.numel() < wanted or self._parts.device != device:
            with torch.inference_mode(mode=False):
                self._parts = torch.empty(max(wanted, 1), dtype=torch.float32, device=device)
        split = rows * sizes.value_dim
        return _Parts(self._parts[:split], self._parts[split:wanted])


@dataclass(slots=True, frozen=True)
class _Sizes:
    """Of a cache; the padded ones are powers of two, which Triton's tiles have to be."""

    kv_heads: int
    block_size: int
    key_dim: int
    value_dim: int
    key_pad: int
    value_pad: int

    @classmethod
    def of(cls, kv_cache: LayerKVCache) -> _Sizes:
        _, kv_heads, block_size, key_dim = kv_cache.key.shape
        value_dim = kv_cache.value.shape[-1]
        pads = [max(16, power_of_two(dim)) for dim in (key_dim, value_dim)]
        return cls(kv_heads, block_size, key_dim, value_dim, *pads)


@dataclass(slots=True, frozen=True)
class _Parts:
    sums: torch.Tensor
    """float32 [parts, H, Dv]"""
    logs: torch.Tensor
    """float32 [parts, H]"""


@dataclass(slots=True, frozen=True)
class _Layer:
    """The arguments that all launches of one layer share."""

    kv_cache: LayerKVCache
    sizes: _Sizes
    plan: WorkPlan
    scale: float
    window: int | None
    soft_cap: float | None
    sinks: torch.Tensor | None

    def attend(
        self,
        query: torch.Tensor,
        output: torch.Tensor,
        metadata: AttentionMetadata,
        launch: Launch,
        parts: _Parts,
    ) -> None:
        sizes, shape, items = self.sizes, launch.shape, launch.items
        limits = self.plan.limits
        attend[(len(items) * sizes.kv_heads,)](
            query, self.kv_cache.key, self.kv_cache.value, output, parts.sums, parts.logs, items,
            metadata.query_start_loc, metadata.seq_lens, metadata.block_table,
            items if limits is None else limits, query if self.sinks is None else self.sinks,
            query.stride(0), query.stride(1), metadata.block_table.stride(0),
            self.scale, self.soft_cap or 1.0, self.window or 0,
            HAS_CLEAR_TILES=shape.has_clear_tiles, HAS_CAP=self.soft_cap is not None,
            HAS_WINDOW=self.window is not None, HAS_LIMITS=limits is not None, HAS_SINKS=self.sinks is not None,
            KV_HEADS=sizes.kv_heads, GROUP=query.shape[1] // sizes.kv_heads, GROUP_PAD=shape.group_pad,
            BLOCK_SIZE=sizes.block_size, BLOCK_M=shape.block_m, BLOCK_N=shape.block_n,
            KEY_DIM=sizes.key_dim, KEY_PAD=sizes.key_pad, VALUE_DIM=sizes.value_dim, VALUE_PAD=sizes.value_pad,
            num_warps=shape.num_warps, num_stages=shape.num_stages,
        )  # fmt: skip

    def merge(self, output: torch.Tensor, launch: Launch, parts: _Parts) -> None:
        num_heads = output.shape[1]
        merge[(len(launch.merges) * num_heads,)](
            parts.sums, parts.logs, output, launch.merges, output if self.sinks is None else self.sinks,
            HAS_SINKS=self.sinks is not None, HEADS=num_heads, PARTS=_MERGED_AT_ONCE,
            VALUE_DIM=self.sizes.value_dim, VALUE_PAD=self.sizes.value_pad,
        )  # fmt: skip


def _with_dense_rows(rows: torch.Tensor) -> torch.Tensor:
    """The kernels know strides of tokens and heads, but none within a head."""
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def launching_on(device: torch.device) -> AbstractContextManager[object]:
    """Make `device` the current one, on which Triton launches."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
