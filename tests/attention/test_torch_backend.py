"""The torch backend against attention written out as in the paper."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from kernelserve.attention.torch_backend import TorchAttention
from tests.helpers.paged_texts import PagedTexts

LENS = (3, 9, 22, 1)


def check_step(texts: PagedTexts, grants: Mapping[int, int], **options: Any) -> None:
    before = list(texts.done)
    for text, rows in texts.step(grants, **options).items():
        expected = texts.expected(text, range(before[text], texts.done[text]), **options)
        torch.testing.assert_close(rows.double(), expected, rtol=1e-5, atol=1e-5)


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
    texts = PagedTexts(TorchAttention(), LENS, seed=seed, **shape)
    rng = random.Random(seed)
    while any(texts.left):
        grants = {
            r: rng.choice([0, 1, 1, min(7, n), n]) if n else 0 for r, n in enumerate(texts.left)
        }
        if any(grants.values()):
            check_step(texts, grants, scale=0.3, **options)


def test_many_decodes_of_uneven_length():
    lens = [1 + (7 * i) % 40 for i in range(24)]
    texts = PagedTexts(TorchAttention(), lens)
    check_step(texts, {r: n - 1 for r, n in enumerate(lens)}, scale=0.5)
    check_step(texts, dict.fromkeys(range(24), 1), scale=0.5)


def test_long_prompt_is_cut_into_pieces(monkeypatch):
    monkeypatch.setattr("kernelserve.attention.step_plan._MAX_PIECE_ROWS", 6)
    monkeypatch.setattr("kernelserve.attention.torch_backend._PLAIN_ROWS", 4)
    for options in ({}, {"sliding_window": 5}, {"logits_soft_cap": 2.0}):
        check_step(
            PagedTexts(TorchAttention(), LENS), {0: 3, 1: 9, 2: 22, 3: 1}, scale=0.3, **options
        )
        chunked = PagedTexts(TorchAttention(), LENS, seed=2)
        check_step(chunked, {2: 5}, scale=0.3, **options)
        check_step(chunked, {2: 17, 1: 8}, scale=0.3, **options)
