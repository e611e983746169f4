"""How fast attention reads the cache while decoding, and computes for prompts."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernelserve.attention import AttentionMetadata, LayerKVCache
from tests.gpu.machine import Machine

__all__ = ["measure_attention"]

HEADS, KV_HEADS, DIM, BLOCK_SIZE = 32, 8, 128, 16
"""A layer of Llama 3 8B."""


def measure_attention(machine: Machine) -> None:
    """Print a line for each shape."""
    decodes = [(1, 65536), (16, 4096), (64, 2048), (256, 1024), (64, 16384)]
    prefills = [(1, 2048), (4, 2048), (1, 16384)]
    for requests, context in decodes if machine.is_gpu else [(2, 20)]:
        machine.tidy()
        run, _ = _prepare(machine, requests, context, rows=1)
        read = 2 * requests * context * KV_HEADS * DIM * machine.dtype.itemsize
        share = machine.share_of_copy(read, machine.seconds(run))
        machine.say(f"attention, {requests:3} decoding at {context:6} tokens: {share}")
    for requests, context in prefills if machine.is_gpu else [(1, 20)]:
        machine.tidy()
        run, written = _prepare(machine, requests, context, rows=context)
        flops = 2 * requests * context**2 * HEADS * DIM  # the half below the diagonal, two products
        share = machine.share_of_product(flops, machine.seconds(run))
        machine.say(f"attention, {requests:3} prompts of {context:6} tokens:     {share}")
        share = machine.share_of_copy(
            4 * written, machine.seconds(_writer(machine, requests * context))
        )
        machine.say(f"cache write, {requests * context:6} tokens:               {share}")


def _prepare(
    machine: Machine, requests: int, context: int, *, rows: int
) -> tuple[Callable[[], object], int]:
    """Return a call of one layer's attention, and bytes of the keys of its rows."""
    from kernelserve.attention.triton_backend import TritonAttention

    blocks = -(-context // BLOCK_SIZE)
    backend, kv_cache = TritonAttention(), _cache(machine, 1 + requests * blocks)
    order = torch.randperm(requests * blocks) + 1
    metadata = AttentionMetadata.build(
        [rows] * requests,
        [context] * requests,
        order.view(requests, blocks).int().to(machine.device),
        torch.zeros(0, dtype=torch.int64, device=machine.device),
        block_size=BLOCK_SIZE,
    )
    query = torch.randn(requests * rows, HEADS, DIM, device=machine.device).to(machine.dtype)
    written = requests * rows * KV_HEADS * DIM * machine.dtype.itemsize
    return lambda: backend.forward(query, kv_cache, metadata, scale=DIM**-0.5), written


def _writer(machine: Machine, tokens: int) -> Callable[[], object]:
    from kernelserve.attention.triton_backend import TritonAttention

    backend, kv_cache = TritonAttention(), _cache(machine, 1 + -(-tokens // BLOCK_SIZE))
    shape = (tokens, KV_HEADS, DIM)
    key = torch.randn(shape, device=machine.device).to(machine.dtype)
    slots = torch.randperm(tokens, device=machine.device)
    return lambda: backend.write_kv(key, key, kv_cache, slots)


def _cache(machine: Machine, blocks: int) -> LayerKVCache:
    from kernelserve.attention.triton_backend import TritonAttention

    kv_cache = TritonAttention().allocate(
        blocks, block_size=BLOCK_SIZE, num_kv_heads=KV_HEADS, key_dim=DIM, value_dim=DIM,
        dtype=machine.dtype, device=machine.device,
    )  # fmt: skip
    for part in kv_cache:
        part.normal_()
    return kv_cache
