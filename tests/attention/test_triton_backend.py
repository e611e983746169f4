"""The Triton kernels, in Triton's interpreter, against attention written out as in the paper."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from kernelserve.attention import AttentionBackend, work_plan
from kernelserve.attention.tile_shape import TileShape
from tests.helpers.paged_texts import PagedTexts
from tests.helpers.triton_here import interpreted_triton

pytestmark = pytest.mark.timeout(600)  # the interpreter is slow, and slower on a busy machine

SEGMENT = 32


@pytest.fixture(scope="module")
def backend() -> Iterator[AttentionBackend]:
    with interpreted_triton():
        from kernelserve.attention.triton_backend import TritonAttention

        yield TritonAttention()


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short texts then cross all borders: of tiles, of segments, of what counts as few rows."""

    def small(make: Callable[..., TileShape], block_m: int) -> Any:
        def smaller(group: int, *rest: Any) -> TileShape:
            shape = make(group, *rest)
            rows = max(block_m, shape.group_pad)
            return dataclasses.replace(shape, block_m=rows, block_n=16)

        return smaller

    monkeypatch.setattr(TileShape, "few", small(TileShape.few, 4))
    monkeypatch.setattr(TileShape, "many", small(TileShape.many, 16))
    monkeypatch.setattr(work_plan, "SEGMENT", SEGMENT)
    monkeypatch.setattr(work_plan, "_SPLIT_ROWS", 8)


def check_step(
    texts: PagedTexts,
    grants: Mapping[int, int],
    *,
    spans: Mapping[int, list[tuple[int, int]]] | None = None,
    tolerance: float = 1e-5,
    **options: Any,
) -> dict[int, torch.Tensor]:
    before = list(texts.done)
    results = texts.step(grants, spans=spans, **options)
    for text, rows in results.items():
        positions = range(before[text], texts.done[text])
        here = [] if spans is None else spans.get(text, [])
        expected = texts.expected(text, positions, spans=here, **options)
        torch.testing.assert_close(rows.double(), expected, rtol=tolerance, atol=tolerance)
    return results


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], list[tuple[int, int]]]:
    """Shapes, options, and the steps: rows of each text."""
    kv_heads, group = draw(st.sampled_from([(1, 1), (2, 3), (1, 4), (3, 1), (2, 2)]))
    heads = kv_heads * group
    shapes: dict[str, Any] = {
        "heads": heads,
        "kv_heads": kv_heads,
        "key_dim": draw(st.sampled_from([16, 24])),
        "value_dim": draw(st.sampled_from([16, 8])),
        "block_size": draw(st.sampled_from([1, 4, 5, 16])),
    }
    options: dict[str, Any] = {
        "scale": draw(st.sampled_from([0.1, 0.5])),
        "sliding_window": draw(st.sampled_from([None, 1, 7, 30, 200])),
        "logits_soft_cap": draw(st.sampled_from([None, 1.5])),
        "sinks": torch.randn(heads, generator=torch.Generator().manual_seed(heads))
        if draw(st.booleans())
        else None,
    }
    size = st.sampled_from([0, 1, 2, 5, 17, 40])
    steps = draw(st.lists(st.tuples(size, size).filter(any), min_size=1, max_size=4))
    return shapes, options, steps


@seed(7)
@settings(
    max_examples=8,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(case=cases())
def test_any_step_equals_dense_attention(
    backend: AttentionBackend, small_tiles: None, case: tuple[Any, Any, Any]
) -> None:
    shapes, options, steps = case
    texts = PagedTexts(backend, [sum(step[i] for step in steps) for i in (0, 1)], **shapes)
    for step in steps:
        check_step(texts, dict(enumerate(step)), **options)


def test_long_texts_are_read_in_parts(backend: AttentionBackend) -> None:
    """The sizes that GPUs use: three segments, and a last one that is nearly empty."""
    lens = [1100, 1027, 513]
    texts = PagedTexts(backend, lens, kv_heads=1, key_dim=16, value_dim=16, block_size=16)
    slots = [
        texts.blocks[text][p // 16] * 16 + p % 16 for text, n in enumerate(lens) for p in range(n)
    ]
    backend.write_kv(torch.cat(texts.k), torch.cat(texts.v), texts.kv, torch.tensor(slots))
    texts.done = [1099, 1022, 512]
    check_step(texts, {0: 1, 1: 5, 2: 1}, scale=0.3, sinks=torch.tensor([0.5, -1.0, 2.0, 0.0]))


def test_a_row_keeps_every_bit_in_any_company(backend: AttentionBackend, small_tiles: None) -> None:
    lens = [38, 3, 20]
    alone, together = PagedTexts(backend, lens, seed=3), PagedTexts(backend, lens, seed=3)
    for texts in (alone, together):
        texts.step({0: 37}, scale=0.3)
    together.step({1: 2, 2: 19}, scale=0.3)
    expected = alone.step({0: 1}, scale=0.3)[0]
    assert torch.equal(together.step({2: 1, 0: 1, 1: 1}, scale=0.3)[0], expected)


@pytest.mark.parametrize("window", [None, 6])
def test_images_see_all_of_themselves(
    backend: AttentionBackend, small_tiles: None, window: int | None
) -> None:
    texts = PagedTexts(backend, [45, 8])
    options: dict[str, Any] = {"scale": 0.3, "sliding_window": window}
    check_step(texts, {0: 5}, **options)
    check_step(texts, {0: 39, 1: 8}, spans={0: [(7, 30), (31, 36)], 1: [(0, 6)]}, **options)
    check_step(texts, {0: 1}, spans={}, **options)


def test_half_precision(backend: AttentionBackend) -> None:
    texts = PagedTexts(backend, [30, 9], dtype=torch.float16, key_dim=16, value_dim=16)
    for grants in ({0: 20, 1: 8}, {0: 10, 1: 1}):
        check_step(texts, grants, scale=0.3, tolerance=2e-3)


def test_rows_that_are_slices_of_wider_ones(backend: AttentionBackend) -> None:
    """As a merged projection gives them; and queries that are not dense at all."""
    texts = PagedTexts(backend, [6])
    wide = torch.cat([texts.q[0], texts.k[0], texts.v[0]], dim=1)
    texts.q, texts.k, texts.v = [wide[:, :4]], [wide[:, 4:6]], [wide[:, 6:]]
    texts.q[0] = texts.q[0].transpose(1, 2).contiguous().transpose(1, 2)
    assert not texts.k[0].is_contiguous()
    check_step(texts, {0: 6}, scale=0.3)
