"""A tile of query rows walks through the keys that it may see, BLOCK_N at a time, with one softmax over all."""

import triton
import triton.language as tl

__all__ = ["LOG2E", "MINUS_INFINITY", "load_rows", "store_rows", "walk_keys"]

LOG2E = tl.constexpr(1.4426950408889634)
MINUS_INFINITY = tl.constexpr(float("-inf"))
PRECISION = tl.constexpr("tf32x3")  # of float32: nearly its own, on the matrix units


@triton.jit
def load_rows(pointer, offsets, is_row, CHECKED: tl.constexpr, DIM: tl.constexpr, PAD: tl.constexpr):  # fmt: skip
    """[n, PAD] at element offsets [n]: zero behind DIM and, if CHECKED, where no row is."""
    columns = tl.arange(0, PAD)
    pointers = pointer + offsets[:, None] + columns[None, :]
    if CHECKED:
        return tl.load(pointers, mask=is_row[:, None] & (columns < DIM)[None, :], other=0.0)
    if PAD != DIM:
        return tl.load(pointers, mask=(columns < DIM)[None, :], other=0.0)
    return tl.load(pointers)


@triton.jit
def store_rows(pointer, offsets, rows, is_row, DIM: tl.constexpr, PAD: tl.constexpr):
    """Write rows [n, PAD] to element offsets [n], without what is behind DIM."""
    columns = tl.arange(0, PAD)
    mask = is_row[:, None] & (columns < DIM)[None, :]
    tl.store(pointer + offsets[:, None] + columns[None, :], rows, mask=mask)


@triton.jit
def _scores(q, k, scale, soft_cap, HAS_CAP: tl.constexpr):
    """[m, n] in units of log 2, so that exp2 gives the weights."""
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    if HAS_CAP:
        # tanh(x) = 1 - 2 / (exp(2 x) + 1), right at both ends
        grown = tl.exp2(scores * (2.0 * LOG2E / soft_cap))
        scores = soft_cap - 2.0 * soft_cap / (grown + 1.0)
    return scores * LOG2E


@triton.jit
def _walk(
    acc, peak, total, q, begin, end, limit, position, keys, values, table, kv_head, scale, soft_cap, window,
    MASKED: tl.constexpr, HAS_CAP: tl.constexpr, HAS_WINDOW: tl.constexpr, KV_HEADS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, BLOCK_N: tl.constexpr, KEY_DIM: tl.constexpr, KEY_PAD: tl.constexpr,
    VALUE_DIM: tl.constexpr, VALUE_PAD: tl.constexpr,
):  # fmt: skip
    """Take the keys from `begin` to `end` in. Not MASKED: all rows see all of them, and the tiles are full."""
    for first in range(begin, end, BLOCK_N):
        at = first + tl.arange(0, BLOCK_N)
        is_inside = at < end
        block = tl.load(table + at // BLOCK_SIZE, mask=is_inside, other=0).to(tl.int64)
        place = (block * KV_HEADS + kv_head) * BLOCK_SIZE + at % BLOCK_SIZE
        k = load_rows(keys, place * KEY_DIM, is_inside, MASKED, KEY_DIM, KEY_PAD)
        scores = _scores(q, k, scale, soft_cap, HAS_CAP)
        if MASKED:
            is_seen = is_inside[None, :] & (at[None, :] <= limit[:, None])
            if HAS_WINDOW:
                is_seen = is_seen & (at[None, :] > position[:, None] - window)
            scores = tl.where(is_seen, scores, MINUS_INFINITY)
        new_peak = tl.maximum(peak, tl.max(scores, 1))
        # A row that has seen nothing yet: 0 in place of -inf, or the differences would be NaN.
        shift = tl.where(new_peak == MINUS_INFINITY, 0.0, new_peak)
        decay = tl.exp2(peak - shift)
        weights = tl.exp2(scores - shift[:, None])
        total = total * decay + tl.sum(weights, 1)
        v = load_rows(values, place * VALUE_DIM, is_inside, MASKED, VALUE_DIM, VALUE_PAD)
        acc = tl.dot(weights.to(v.dtype), v, acc * decay[:, None], input_precision=PRECISION)
        peak = new_peak
    return acc, peak, total


@triton.jit
def walk_keys(
    acc, peak, total, q, begin, end, first_position, last_position, limit, position, keys, values, table, kv_head,
    scale, soft_cap, window,
    HAS_CLEAR_TILES: tl.constexpr, HAS_CAP: tl.constexpr, HAS_WINDOW: tl.constexpr, KV_HEADS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, BLOCK_N: tl.constexpr, KEY_DIM: tl.constexpr, KEY_PAD: tl.constexpr,
    VALUE_DIM: tl.constexpr, VALUE_PAD: tl.constexpr,
):  # fmt: skip
    """Return weighted sums [m, VALUE_PAD], highest score and sum of weights [m] of the keys from `begin` to `end`.

    `begin` is a multiple of BLOCK_N. Row i sees key k if k <= limit[i] and, with a window, k > position[i] - window.
    HAS_CLEAR_TILES: tiles that all rows see, from first_position to last_position, are taken without a mask.
    """
    rest = begin
    if HAS_CLEAR_TILES:
        if HAS_WINDOW:
            first_clear = tl.maximum(last_position - window + BLOCK_N, begin) // BLOCK_N * BLOCK_N
            rest = tl.minimum(first_clear, end)
            acc, peak, total = _walk(
                acc, peak, total, q, begin, rest, limit, position, keys, values, table, kv_head, scale, soft_cap,
                window, True, HAS_CAP, HAS_WINDOW, KV_HEADS, BLOCK_SIZE, BLOCK_N, KEY_DIM, KEY_PAD, VALUE_DIM,
                VALUE_PAD,
            )  # fmt: skip
        clear = rest
        rest = tl.minimum(tl.maximum((first_position + 1) // BLOCK_N * BLOCK_N, clear), end)
        acc, peak, total = _walk(
            acc, peak, total, q, clear, rest, limit, position, keys, values, table, kv_head, scale, soft_cap,
            window, False, HAS_CAP, HAS_WINDOW, KV_HEADS, BLOCK_SIZE, BLOCK_N, KEY_DIM, KEY_PAD, VALUE_DIM, VALUE_PAD,
        )  # fmt: skip
    return _walk(
        acc, peak, total, q, rest, end, limit, position, keys, values, table, kv_head, scale, soft_cap,
        window, True, HAS_CAP, HAS_WINDOW, KV_HEADS, BLOCK_SIZE, BLOCK_N, KEY_DIM, KEY_PAD, VALUE_DIM, VALUE_PAD,
    )  # fmt: skip
