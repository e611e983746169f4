"""Puts the parts of a row together: a long text is read by several programs, each with a softmax of its own."""

import triton
import triton.language as tl

from kernelserve.attention.triton_kernels.walk import LOG2E, MINUS_INFINITY

__all__ = ["merge"]


@triton.jit
def merge(
    part_sums, part_logs, output, rows, sinks,
    HAS_SINKS: tl.constexpr, HEADS: tl.constexpr, PARTS: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_PAD: tl.constexpr,
):  # fmt: skip
    """Grid: (rows * HEADS,). A row, int32 [4], is token, first part, number of parts, distance between parts.

    PARTS are taken at a time, always the same ones together and in the same order.
    """
    entry = rows + (tl.program_id(0) // HEADS) * 4
    head = tl.program_id(0) % HEADS
    token, first = tl.load(entry).to(tl.int64), tl.load(entry + 1)
    count, distance = tl.load(entry + 2), tl.load(entry + 3)
    columns = tl.arange(0, VALUE_PAD)
    is_column = columns < VALUE_DIM
    peak = MINUS_INFINITY
    total = 0.0
    if HAS_SINKS:
        peak = tl.load(sinks + head).to(tl.float32) * LOG2E
        total = 1.0
    acc = tl.zeros([VALUE_PAD], tl.float32)
    for begin in range(0, count, PARTS):
        number = begin + tl.arange(0, PARTS)
        is_part = number < count
        place = (first + number * distance).to(tl.int64) * HEADS + head
        logs = tl.load(part_logs + place, mask=is_part, other=MINUS_INFINITY)
        sums = tl.load(
            part_sums + place[:, None] * VALUE_DIM + columns[None, :],
            mask=is_part[:, None] & is_column[None, :],
            other=0.0,
        )
        new_peak = tl.maximum(peak, tl.max(logs, 0))
        # The first parts may be hidden from a row by its window.
        shift = tl.where(new_peak == MINUS_INFINITY, 0.0, new_peak)
        decay = tl.exp2(peak - shift)
        weights = tl.exp2(logs - shift)
        total = total * decay + tl.sum(weights, 0)
        acc = acc * decay + tl.sum(weights[:, None] * sums, 0)
        peak = new_peak
    place = (token * HEADS + head) * VALUE_DIM
    result = (acc / total).to(output.dtype.element_ty)
    tl.store(output + place + columns, result, mask=is_column)
