"""Takes the output of a merged QKV projection apart: norms and rotates heads, and writes K/V into the cache."""

import triton
import triton.language as tl

from kernelserve.attention.triton_kernels.walk import load_rows, store_rows

__all__ = ["rotate_and_write"]


@triton.jit
def _weights(query_norm, key_norm, columns, is_query, DIM: tl.constexpr):
    """The weights of a head's norm at some columns, [1, PAD]."""
    of_queries = tl.load(query_norm + columns, mask=columns < DIM, other=0.0).to(tl.float32)
    of_keys = tl.load(key_norm + columns, mask=columns < DIM, other=0.0).to(tl.float32)
    return tl.where(is_query, of_queries, of_keys)[None, :]


@triton.jit
def _rotated(
    qkv, offsets, is_token, position, cosines, sines, query_norm, key_norm, is_query, eps,
    DIM: tl.constexpr, PAD: tl.constexpr, HALF: tl.constexpr, HAS_NORMS: tl.constexpr,
):  # fmt: skip
    """Rows [n, PAD] of one head, float32. Column c < HALF is rotated with column c + HALF."""
    columns = tl.arange(0, PAD)
    other = tl.where(columns < HALF, columns + HALF, columns - HALF)
    is_rotated = columns < 2 * HALF
    other = tl.where(is_rotated, other, columns)
    mask = is_token[:, None] & (columns < DIM)[None, :]
    x = tl.load(qkv + offsets[:, None] + columns[None, :], mask=mask, other=0.0).to(tl.float32)
    y = tl.load(qkv + offsets[:, None] + other[None, :], mask=mask, other=0.0).to(tl.float32)
    if HAS_NORMS:
        scale = tl.rsqrt(tl.sum(x * x, 1) / DIM + eps)[:, None]
        x = x * scale * _weights(query_norm, key_norm, columns, is_query, DIM)
        y = y * scale * _weights(query_norm, key_norm, other, is_query, DIM)
    angle = position[:, None] * HALF + (columns % HALF)[None, :]
    is_angle = is_token[:, None] & is_rotated[None, :]
    cosine = tl.load(cosines + angle, mask=is_angle, other=1.0)
    sine = tl.load(sines + angle, mask=is_angle, other=0.0)
    return x * cosine + tl.where(columns < HALF, -1.0, 1.0)[None, :] * y * sine


@triton.jit(do_not_specialize=["num_tokens"])
def rotate_and_write(
    qkv, query, key_cache, value_cache, slot_mapping, positions, cosines, sines, query_norm, key_norm, num_tokens, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PAD: tl.constexpr, HALF: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, TOKENS: tl.constexpr, HAS_NORMS: tl.constexpr,
):  # fmt: skip
    """Grid: (T / TOKENS, HEADS + 2 * KV_HEADS), one head of `qkv` [T, (HEADS + 2 KV_HEADS) * DIM] each.

    Queries go to `query` [T, HEADS, DIM]; keys and values to the slots of their tokens. Positions and slots are int64,
    cosines and sines float32 [positions, HALF].
    """
    head = tl.program_id(1)
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    is_token = token < num_tokens
    offsets = token * ((HEADS + 2 * KV_HEADS) * DIM) + head * DIM
    slot = tl.load(slot_mapping + token, mask=is_token, other=0)
    first = slot // BLOCK_SIZE * (KV_HEADS * BLOCK_SIZE) + slot % BLOCK_SIZE
    if head >= HEADS + KV_HEADS:
        values = load_rows(qkv, offsets, is_token, True, DIM, PAD)
        place = first + (head - HEADS - KV_HEADS) * BLOCK_SIZE
        store_rows(value_cache, place * DIM, values, is_token, DIM, PAD)
    else:
        position = tl.load(positions + token, mask=is_token, other=0)
        rows = _rotated(
            qkv, offsets, is_token, position, cosines, sines, query_norm, key_norm, head < HEADS, eps,
            DIM, PAD, HALF, HAS_NORMS,
        ).to(query.dtype.element_ty)  # fmt: skip
        if head < HEADS:
            store_rows(query, (token * HEADS + head) * DIM, rows, is_token, DIM, PAD)
        else:
            place = first + (head - HEADS) * BLOCK_SIZE
            store_rows(key_cache, place * DIM, rows, is_token, DIM, PAD)
