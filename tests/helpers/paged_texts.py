"""Texts of random K/V that grow in the paged cache of a backend, and attention written out as in the paper."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kernelserve.attention import AttentionBackend, AttentionMetadata, LayerKVCache

__all__ = ["PagedTexts", "dense_attention"]

Span = tuple[int, int]


def dense_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    first_position: int,
    *,
    scale: float,
    sliding_window: int | None = None,
    logits_soft_cap: float | None = None,
    sinks: torch.Tensor | None = None,
    spans: Sequence[Span] = (),
) -> torch.Tensor:
    """[q, H, D] over [L, Hkv, D] where the first query has the given position; float64."""
    q, k, v = q.double(), k.double(), v.double()
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    position = first_position + torch.arange(q.shape[0], device=q.device)[:, None]
    key = torch.arange(k.shape[0], device=q.device)
    seen = key <= position
    for low, high in spans:
        seen |= (position >= low) & (position < high) & (key >= low) & (key < high)
    if sliding_window is not None:
        seen &= key > position - sliding_window
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    if logits_soft_cap is not None:
        scores = logits_soft_cap * torch.tanh(scores / logits_soft_cap)
    scores = scores.masked_fill(~seen, float("-inf"))
    if sinks is not None:
        extra = sinks.double()[:, None, None].expand(-1, q.shape[0], 1)
        scores = torch.cat([scores, extra], dim=-1)
    weights = scores.softmax(-1)[..., : len(key)]
    return torch.einsum("hqk,khd->qhd", weights, v)


class PagedTexts:
    """A cache that is full of NaN at first, and texts whose blocks lie in any order."""

    def __init__(
        self,
        backend: AttentionBackend,
        lens: Sequence[int],
        *,
        seed: int = 0,
        heads: int = 4,
        kv_heads: int = 2,
        key_dim: int = 8,
        value_dim: int = 8,
        block_size: int = 4,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> None:
        self.backend, self.block_size, self.device = backend, block_size, torch.device(device)
        generator = torch.Generator().manual_seed(seed)

        def texts(num_heads: int, dim: int) -> list[torch.Tensor]:
            shapes = [(length, num_heads, dim) for length in lens]
            return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]

        self.q, self.k, self.v = (
            texts(heads, key_dim),
            texts(kv_heads, key_dim),
            texts(kv_heads, value_dim),
        )
        needed = [-(-length // block_size) for length in lens]
        free = list(range(1, 1 + 2 * sum(needed)))
        random.Random(seed).shuffle(free)
        self.blocks = [[free.pop() for _ in range(count)] for count in needed]
        self.kv: LayerKVCache = backend.allocate(
            1 + 2 * sum(needed),
            block_size=block_size,
            num_kv_heads=kv_heads,
            key_dim=key_dim,
            value_dim=value_dim,
            dtype=dtype,
            device=self.device,
        )
        for part in self.kv:
            part.fill_(float("nan"))
        self.done = [0] * len(lens)

    @property
    def left(self) -> list[int]:
        """Rows of each text that are not computed yet."""
        return [len(q) - done for q, done in zip(self.q, self.done, strict=True)]

    def step(
        self,
        grants: Mapping[int, int],
        *,
        spans: Mapping[int, list[Span]] | None = None,
        **options: Any,
    ) -> dict[int, torch.Tensor]:
        """Compute so many rows of each text in one step; return them by text."""
        rows = {r: range(self.done[r], self.done[r] + n) for r, n in grants.items() if n}
        table = torch.zeros(len(rows), max(map(len, self.blocks)), dtype=torch.int32)
        slots: list[int] = []
        for line, (r, positions) in zip(table, rows.items(), strict=True):
            line[: len(self.blocks[r])] = torch.tensor(self.blocks[r])
            slots += [
                self.blocks[r][p // self.block_size] * self.block_size + p % self.block_size
                for p in positions
            ]
        metadata = AttentionMetadata.build(
            [len(positions) for positions in rows.values()],
            [positions.stop for positions in rows.values()],
            table.to(self.device),
            torch.tensor(slots, device=self.device),
            block_size=self.block_size,
            spans=None if spans is None else [spans.get(r, []) for r in rows],
        )

        def take(texts: list[torch.Tensor]) -> torch.Tensor:
            parts = [texts[r][positions.start : positions.stop] for r, positions in rows.items()]
            return torch.cat(parts).to(self.device)

        self.backend.write_kv(take(self.k), take(self.v), self.kv, metadata.slot_mapping)
        result = self.backend.forward(take(self.q), self.kv, metadata, **options)
        for r, positions in rows.items():
            self.done[r] = positions.stop
        parts = result.cpu().split([len(positions) for positions in rows.values()])
        return dict(zip(rows, parts, strict=True))

    def expected(
        self,
        text: int,
        positions: range,
        *,
        spans: Sequence[Span] = (),
        device: torch.device | None = None,
        **options: Any,
    ) -> torch.Tensor:
        """What rows of one text should be, in float64, computed on `device`. `spans` are of this text."""
        end = max([positions.stop, *(high for _, high in spans)])
        return dense_attention(
            self.q[text][positions.start : positions.stop].to(device),
            self.k[text][:end].to(device),
            self.v[text][:end].to(device),
            positions.start,
            spans=spans,
            **options,
        )
