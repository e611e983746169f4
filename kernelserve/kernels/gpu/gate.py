"""The activation of a gated MLP."""

import triton
import triton.language as tl

__all__ = ["gate"]


@triton.jit
def gate(
    gate_up, output,
    ACTIVATION: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Grid: (T, ceil(WIDTH / COLUMNS)). output [T, WIDTH] = activation(first half of a row) * second half.

    ACTIVATION as in DecoderStructure: 0 is SiLU, 1 GELU in its tanh form.
    """
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = columns < WIDTH
    place = gate_up + row * (2 * WIDTH) + columns
    x = tl.load(place, mask=is_column, other=0.0).to(tl.float32)
    up = tl.load(place + WIDTH, mask=is_column, other=0.0).to(tl.float32)
    slope = x
    if ACTIVATION == 1:
        slope = 1.5957691216057308 * (x + 0.044715 * x * x * x)  # (1 + tanh(z)) / 2 is sigmoid(2 z)
    result = x / (1.0 + tl.exp(-slope)) * up
    tl.store(output + row * WIDTH + columns, result.to(output.dtype.element_ty), mask=is_column)
