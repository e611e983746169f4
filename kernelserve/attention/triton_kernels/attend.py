"""Attention of tiles of query rows over a paged KV cache, for prompts and for decoding.

A program computes one work item for one K/V head: BLOCK_M rows, GROUP_PAD of them for each token, so that all query
heads which share the K/V head read it once. A row's sums have one order, whoever else is in its tile or in the step.
"""

import triton
import triton.language as tl

from kernelserve.attention.triton_kernels.walk import (
    LOG2E,
    MINUS_INFINITY,
    load_rows,
    store_rows,
    walk_keys,
)

__all__ = ["attend"]


@triton.jit
def _first_state(
    sinks, head, is_row, part,
    HAS_SINKS: tl.constexpr, BLOCK_M: tl.constexpr, VALUE_PAD: tl.constexpr,
):  # fmt: skip
    """Sums, highest score and sum of weights before any key. Sinks of parts are added when these are merged."""
    peak = tl.full([BLOCK_M], MINUS_INFINITY, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    if HAS_SINKS:
        sink = tl.load(sinks + head, mask=is_row, other=0.0).to(tl.float32) * LOG2E
        peak = tl.where(part < 0, sink, peak)
        total = tl.where(part < 0, 1.0, total)
    return tl.zeros([BLOCK_M, VALUE_PAD], tl.float32), peak, total


@triton.jit(do_not_specialize=["table_stride", "window"])
def attend(
    query, keys, values, output, part_sums, part_logs, items, query_start_loc, seq_lens, block_table, limits, sinks,
    query_stride, query_head_stride, table_stride, scale, soft_cap, window,
    HAS_CLEAR_TILES: tl.constexpr, HAS_CAP: tl.constexpr, HAS_WINDOW: tl.constexpr, HAS_LIMITS: tl.constexpr,
    HAS_SINKS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, KEY_DIM: tl.constexpr,
    KEY_PAD: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_PAD: tl.constexpr,
):  # fmt: skip
    """Grid: (items * KV_HEADS,). An item, int32 [5], is

    request, the first of its rows, first key, end of the keys, part. Part -1: the result goes to output [T, H, Dv];
    else row i of the tile goes to part_sums[part + i] [H, Dv] and part_logs[part + i] [H], float32, for `merge`.
    """
    item = items + (tl.program_id(0) // KV_HEADS) * 5
    kv_head = tl.program_id(0) % KV_HEADS
    request, first_row = tl.load(item), tl.load(item + 1)
    begin, end, part = tl.load(item + 2), tl.load(item + 3), tl.load(item + 4)
    start = tl.load(query_start_loc + request)
    num_rows = tl.load(query_start_loc + request + 1) - start
    offset = tl.load(seq_lens + request) - num_rows  # position of the request's first row

    lane = tl.arange(0, BLOCK_M)
    row = first_row + lane // GROUP_PAD
    head = kv_head * GROUP + lane % GROUP_PAD
    is_row = (row < num_rows) & (lane % GROUP_PAD < GROUP)
    token = (start + row).to(tl.int64)
    limit = offset + row
    if HAS_LIMITS:
        limit = tl.load(limits + token, mask=is_row, other=0)
    q = load_rows(
        query, token * query_stride + head * query_head_stride, is_row, True, KEY_DIM, KEY_PAD
    )
    acc, peak, total = _first_state(sinks, head, is_row, part, HAS_SINKS, BLOCK_M, VALUE_PAD)
    last_row = tl.minimum(first_row + BLOCK_M // GROUP_PAD, num_rows) - 1
    acc, peak, total = walk_keys(
        acc, peak, total, q, begin, end, offset + first_row, offset + last_row, limit, offset + row,
        keys, values, block_table + request.to(tl.int64) * table_stride, kv_head, scale, soft_cap, window,
        HAS_CLEAR_TILES, HAS_CAP, HAS_WINDOW, KV_HEADS, BLOCK_SIZE, BLOCK_N, KEY_DIM, KEY_PAD, VALUE_DIM, VALUE_PAD,
    )  # fmt: skip

    weight = tl.where(total == 0.0, 1.0, total)  # a row of a part that sees none of its keys
    result = acc / weight[:, None]
    if part < 0:
        place = token * (KV_HEADS * GROUP) + head
        rounded = result.to(output.dtype.element_ty)
        store_rows(output, place * VALUE_DIM, rounded, is_row, VALUE_DIM, VALUE_PAD)
    else:
        place = (part + row - first_row).to(tl.int64) * (KV_HEADS * GROUP) + head
        store_rows(part_sums, place * VALUE_DIM, result, is_row, VALUE_DIM, VALUE_PAD)
        tl.store(part_logs + place, peak + tl.log2(weight), mask=is_row)
