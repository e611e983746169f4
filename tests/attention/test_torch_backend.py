"""The torch backend against attention written out as in the paper."""

from __future__ import annotations

import random

import pytest
import torch

from kernelserve.attention import AttentionMetadata, LayerKVCache
from kernelserve.attention.torch_backend import TorchAttention

BLOCK_SIZE = 4
NUM_BLOCKS = 200


def dense_attention(q, k, v, first_position, *, scale, window=None, cap=None, sinks=None):
    """[q, H, D] over [L, Hkv, D] where the first query has the given position."""
    groups = q.shape[1] // k.shape[1]
    out = torch.empty(q.shape[0], q.shape[1], v.shape[-1])
    for i in range(q.shape[0]):
        position = first_position + i
        low = max(0, position - window + 1) if window else 0
        for h in range(q.shape[1]):
            scores = k[low : position + 1, h // groups] @ q[i, h] * scale
            if cap:
                scores = cap * torch.tanh(scores / cap)
            if sinks is not None:
                scores = torch.cat([scores, sinks[h : h + 1]])
            weights = scores.softmax(0)[: position + 1 - low]
            out[i, h] = weights @ v[low : position + 1, h // groups]
    return out


class Cache:
    """A paged cache full of NaN, and texts of random K/V with shuffled blocks."""

    def __init__(self, seed, *, heads=4, kv_heads=2, key_dim=8, value_dim=8, lens=(3, 9, 22, 1)):
        self.backend = TorchAttention()
        self.rng = random.Random(seed)
        torch.manual_seed(seed)
        self.heads = heads
        self.kv: LayerKVCache = self.backend.allocate(
            NUM_BLOCKS,
            block_size=BLOCK_SIZE,
            num_kv_heads=kv_heads,
            key_dim=key_dim,
            value_dim=value_dim,
            dtype=torch.float32,
            device=torch.device("cpu"),
        )
        for part in self.kv:
            part.fill_(float("nan"))
        self.q = [torch.randn(n, heads, key_dim) for n in lens]
        self.k = [torch.randn(n, kv_heads, key_dim) for n in lens]
        self.v = [torch.randn(n, kv_heads, value_dim) for n in lens]
        free = list(range(1, NUM_BLOCKS))
        self.rng.shuffle(free)
        self.blocks = [[free.pop() for _ in range(-(-n // BLOCK_SIZE))] for n in lens]
        self.done = [0] * len(lens)

    def step(self, grants, **options):
        """Run one step of so many rows a request; return and check each request's rows."""
        requests = [r for r in grants if grants[r]]
        width = max(len(b) for b in self.blocks)
        table = torch.zeros(len(requests), width, dtype=torch.int32)
        slots, rows = [], []
        for i, r in enumerate(requests):
            table[i, : len(self.blocks[r])] = torch.tensor(self.blocks[r])
            rows.append(range(self.done[r], self.done[r] + grants[r]))
            slots += [
                self.blocks[r][p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in rows[i]
            ]
        metadata = AttentionMetadata.build(
            [grants[r] for r in requests],
            [self.done[r] + grants[r] for r in requests],
            table,
            torch.tensor(slots),
            block_size=BLOCK_SIZE,
        )

        def take(texts):
            return torch.cat(
                [texts[r][rows[i].start : rows[i].stop] for i, r in enumerate(requests)]
            )

        self.backend.write_kv(take(self.k), take(self.v), self.kv, metadata.slot_mapping)
        out = self.backend.forward(take(self.q), self.kv, metadata, **options)
        for i, r in enumerate(requests):
            low, high = metadata.query_start_locs[i], metadata.query_start_locs[i + 1]
            expected = dense_attention(
                self.q[r][rows[i].start : rows[i].stop],
                self.k[r],
                self.v[r],
                rows[i].start,
                scale=options["scale"],
                window=options.get("sliding_window"),
                cap=options.get("logits_soft_cap"),
                sinks=options.get("sinks"),
            )
            torch.testing.assert_close(out[low:high], expected, rtol=1e-5, atol=1e-5)
            self.done[r] += grants[r]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sliding_window": 5},
        {"sliding_window": 1},
        {"logits_soft_cap": 2.0},
        {"logits_soft_cap": 2.0, "sliding_window": 6},
        {"sinks": torch.tensor([0.5, -1.0, 2.0, 0.0])},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "shape", [{}, {"kv_heads": 4}, {"kv_heads": 1}, {"key_dim": 12, "value_dim": 8}], ids=str
)
def test_random_chunks_equal_dense_attention(seed, options, shape):
    cache = Cache(seed, **shape)
    while any(done < len(q) for done, q in zip(cache.done, cache.q, strict=True)):
        left = [len(q) - done for q, done in zip(cache.q, cache.done, strict=True)]
        grants = {
            r: cache.rng.choice([0, 1, 1, min(7, n), n]) if n else 0 for r, n in enumerate(left)
        }
        if any(grants.values()):
            cache.step(grants, scale=0.3, **options)


def test_many_decodes_of_uneven_length():
    lens = [1 + (7 * i) % 40 for i in range(24)]
    cache = Cache(0, lens=tuple(lens))
    cache.step({r: n - 1 for r, n in enumerate(lens)}, scale=0.5)
    cache.step(dict.fromkeys(range(24), 1), scale=0.5)


def test_long_prompt_is_cut_into_pieces(monkeypatch):
    monkeypatch.setattr("kernelserve.attention.step_plan._MAX_PIECE_ROWS", 6)
    monkeypatch.setattr("kernelserve.attention.torch_backend._PLAIN_ROWS", 4)
    for options in ({}, {"sliding_window": 5}, {"logits_soft_cap": 2.0}):
        Cache(1).step({0: 3, 1: 9, 2: 22, 3: 1}, scale=0.3, **options)
        chunked = Cache(2)
        chunked.step({2: 5}, scale=0.3, **options)
        chunked.step({2: 17, 1: 8}, scale=0.3, **options)
