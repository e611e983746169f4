"""Random numbers as a function of (seed, position, token id): there is no generator state.

So preemption, chunked prefill, batching and row moves cannot change a seeded answer. The generator
is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA
2014): each (seed, position) starts a stream of its own, and token id i takes the i-th number of it.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

__all__ = ["gumbel_noise", "seed_of_request", "uniform_noise"]


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


_GAMMA = _signed(0x9E3779B97F4A7C15)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)
_LARGEST_BELOW_ONE = 1 - 2**-24


def seed_of_request(seed: int | None, request_id: str, engine_seed: int) -> int:
    """Return the caller's seed, or else one that follows from the engine's seed and the id."""
    if seed is not None:
        return seed
    digest = hashlib.blake2b(f"{engine_seed}/{request_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def uniform_noise(seeds: Tensor, positions: Tensor, vocab_size: int) -> Tensor:
    """Return float32 [R, vocab_size] in (0, 1) for int64 `seeds` and `positions` of shape [R]."""
    streams = _mix(_mix(seeds + _GAMMA) + positions * _GAMMA)
    steps = torch.arange(1, vocab_size + 1, device=seeds.device) * _GAMMA
    bits = _mix(streams[:, None] + steps)
    bits >>= 32
    bits &= 0xFFFFFFFF
    # 32 bits and not 24: the smallest values, which win the race below, keep their full precision
    return bits.float().add_(0.5).mul_(2.0**-32).clamp_(max=_LARGEST_BELOW_ONE)


def gumbel_noise(seeds: Tensor, positions: Tensor, vocab_size: int) -> Tensor:
    """Return Gumbel noise [R, vocab_size]: argmax(logits + noise) draws from softmax(logits)."""
    uniform = uniform_noise(seeds, positions, vocab_size)
    return uniform.neg_().log1p_().neg_().log_().neg_()


def _mix(state: Tensor) -> Tensor:
    """Scramble each int64 of `state` in place and return it."""
    state ^= _shift_right(state, 30)
    state *= _MIX_1
    state ^= _shift_right(state, 27)
    state *= _MIX_2
    state ^= _shift_right(state, 31)
    return state


def _shift_right(value: Tensor, bits: int) -> Tensor:
    # torch shifts int64 with its sign: mask the copies of the sign bit away
    return (value >> bits).bitwise_and_((1 << (64 - bits)) - 1)
