"""Turns the quantized blocks of GGUF tensors into float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from kernelserve.model.gguf_file import GgufFile, GgufTensor

__all__ = ["dequantize", "one_thread"]

_BLOCKS_AT_ONCE = 4096
_NUMBERS = {18: 32, 20: 32, 34: 32, 144: 256, 210: 256}
"""Bytes of a block -> its numbers, for the types unpacked here."""
_PLAIN = {0: torch.float32, 1: torch.float16, 30: torch.bfloat16}


def dequantize(
    file: GgufFile, tensor: GgufTensor, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Return the values of a tensor, computed in float32 and rounded to `dtype`.

    The common types are unpacked here with torch; the rest by the gguf package, a little slower.
    """
    raw = torch.frombuffer(
        file.data, dtype=torch.uint8, count=tensor.num_bytes, offset=tensor.start
    )
    if tensor.ggml_type in _PLAIN:
        return raw.view(_PLAIN[tensor.ggml_type]).to(dtype, copy=True).view(tensor.shape)
    unpack, block_bytes = _UNPACK.get(tensor.ggml_type, (_with_gguf(tensor), 0))
    if not block_bytes:
        return unpack(raw).to(dtype).view(tensor.shape)
    values = torch.empty(tensor.shape, dtype=dtype)
    flat, blocks = values.view(-1), raw.view(-1, block_bytes)
    numbers = _NUMBERS[block_bytes]
    # Piece by piece, so that what is in between stays in the cache of the CPU.
    for low in range(0, len(blocks), _BLOCKS_AT_ONCE):
        high = low + _BLOCKS_AT_ONCE
        flat[low * numbers : high * numbers] = unpack(blocks[low:high]).view(-1)
    return values


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread: for pieces as small as ours, waking others costs more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _with_gguf(tensor: GgufTensor) -> Callable[[torch.Tensor], torch.Tensor]:
    def unpack(raw: torch.Tensor) -> torch.Tensor:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize as gguf_dequantize

        rows = raw.view(*tensor.shape[:-1], -1).numpy()
        return torch.from_numpy(gguf_dequantize(rows, GGMLQuantizationType(tensor.ggml_type)))

    return unpack


def _half(blocks: torch.Tensor, start: int) -> torch.Tensor:
    """One float16 a block: [n, 1]"""
    return blocks[:, start : start + 2].view(torch.float16).float()


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """[..., w] bytes -> [..., 2w]: all low halves, then all high halves"""
    return torch.cat([packed & 15, packed >> 4], dim=-1)


def _q4_0(blocks: torch.Tensor) -> torch.Tensor:
    return (_nibbles(blocks[:, 2:]).float() - 8) * _half(blocks, 0)


def _q4_1(blocks: torch.Tensor) -> torch.Tensor:
    return _nibbles(blocks[:, 4:]).float().mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def _q8_0(blocks: torch.Tensor) -> torch.Tensor:
    return blocks[:, 2:].view(torch.int8).float().mul_(_half(blocks, 0))


def _q4_k(blocks: torch.Tensor) -> torch.Tensor:
    scales = blocks[:, 4:16].view(-1, 3, 4)
    low, mid, high = scales.unbind(1)  # 6-bit scales and minima, packed
    scale = torch.cat([low & 63, (high & 15) | ((low >> 6) << 4)], dim=-1)  # [n, 8]
    minimum = torch.cat([mid & 63, (high >> 4) | ((mid >> 6) << 4)], dim=-1)
    values = _nibbles(blocks[:, 16:].view(-1, 4, 32)).view(-1, 8, 32).float()
    factor = (_half(blocks, 0) * scale.float())[..., None]
    return values * factor - (_half(blocks, 2) * minimum.float())[..., None]


def _q6_k(blocks: torch.Tensor) -> torch.Tensor:
    low = _nibbles(blocks[:, :128].view(-1, 2, 64)).view(-1, 2, 4, 32)
    packed = blocks[:, 128:192].view(-1, 2, 1, 32)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(1, 1, 4, 1)
    high = (packed >> shifts) & 3
    values = (low | (high << 4)).float().sub_(32).view(-1, 16, 16)
    scale = blocks[:, 192:208].view(torch.int8).float() * _half(blocks, 208)
    return values * scale[..., None]


_UNPACK = {2: (_q4_0, 18), 3: (_q4_1, 20), 8: (_q8_0, 34), 12: (_q4_k, 144), 14: (_q6_k, 210)}
"""Type -> (function, bytes of a block)."""
