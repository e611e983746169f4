"""Writes the K/V of a step into the paged cache."""

import triton
import triton.language as tl

from kernelserve.attention.triton_kernels.walk import load_rows, store_rows

__all__ = ["write_kv"]


@triton.jit(do_not_specialize=["num_tokens"])
def write_kv(
    key, value, key_cache, value_cache, slot_mapping, num_tokens,
    key_stride, key_head_stride, value_stride, value_head_stride,
    KV_HEADS: tl.constexpr, HEADS_PAD: tl.constexpr, TOKENS: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    KEY_DIM: tl.constexpr, KEY_PAD: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_PAD: tl.constexpr,
):  # fmt: skip
    """Grid: (tokens / TOKENS,). Row i of key [T, KV_HEADS, Dk] and value goes to slot slot_mapping[i], int64."""
    lane = tl.arange(0, TOKENS * HEADS_PAD)
    token = tl.program_id(0).to(tl.int64) * TOKENS + lane // HEADS_PAD
    head = lane % HEADS_PAD
    is_row = (token < num_tokens) & (head < KV_HEADS)
    slot = tl.load(slot_mapping + token, mask=is_row, other=0)
    place = (slot // BLOCK_SIZE * KV_HEADS + head) * BLOCK_SIZE + slot % BLOCK_SIZE
    keys = load_rows(
        key, token * key_stride + head * key_head_stride, is_row, True, KEY_DIM, KEY_PAD
    )
    store_rows(key_cache, place * KEY_DIM, keys, is_row, KEY_DIM, KEY_PAD)
    values = load_rows(
        value, token * value_stride + head * value_head_stride, is_row, True, VALUE_DIM, VALUE_PAD
    )
    store_rows(value_cache, place * VALUE_DIM, values, is_row, VALUE_DIM, VALUE_PAD)
