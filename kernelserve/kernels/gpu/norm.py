"""RMSNorm of rows, after something has been added to them."""

import triton
import triton.language as tl

__all__ = ["add_norm"]


@triton.jit
def add_norm(
    rows, stream, weight, output, eps,
    HAS_STREAM: tl.constexpr, HIDDEN: tl.constexpr, PAD: tl.constexpr,
):  # fmt: skip
    """Grid: (rows,). stream [T, HIDDEN] becomes stream + rows, rounded, and output its norm.

    Without HAS_STREAM there is nothing to add to: stream becomes rows.
    """
    columns = tl.arange(0, PAD)
    is_column = columns < HIDDEN
    place = tl.program_id(0).to(tl.int64) * HIDDEN + columns
    row = tl.load(rows + place, mask=is_column, other=0.0)
    if HAS_STREAM:
        sum_ = row.to(tl.float32) + tl.load(stream + place, mask=is_column, other=0.0).to(
            tl.float32
        )
        row = sum_.to(stream.dtype.element_ty)
    tl.store(stream + place, row, mask=is_column)
    wide = row.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / HIDDEN + eps)
    weights = tl.load(weight + columns, mask=is_column, other=0.0).to(tl.float32)
    result = (wide * scale * weights).to(output.dtype.element_ty)
    tl.store(output + place, result, mask=is_column)
