"""Noise is a pure function of (seed, position, token id), and looks random."""

from __future__ import annotations

import math

import torch

from kernelserve.worker.noise import gumbel_noise, seed_of_request, uniform_noise

_MASK = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15


def plain_mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def plain_uniform(seed: int, position: int, token: int) -> float:
    stream = plain_mix((plain_mix((seed + _GAMMA) & _MASK) + position * _GAMMA) & _MASK)
    return ((plain_mix((stream + (token + 1) * _GAMMA) & _MASK) >> 32) + 0.5) * 2.0**-32


def test_splitmix64_known_answer() -> None:
    # first three outputs of the reference implementation for state 1234567
    outputs = [plain_mix((1234567 + i * _GAMMA) & _MASK) for i in (1, 2, 3)]
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_uniform_noise_equals_plain_integers() -> None:
    cases = [(0, 0), (42, 7), (-1, 3), (2**63 - 1, 100_000), (-(2**63), 1)]
    seeds = torch.tensor([s for s, _ in cases])
    positions = torch.tensor([p for _, p in cases])
    noise = uniform_noise(seeds, positions, 50)
    for row, (seed, position) in enumerate(cases):
        for token in (0, 1, 49):
            expected = min(plain_uniform(seed, position, token), 1 - 2**-24)
            assert math.isclose(float(noise[row, token]), expected, rel_tol=1e-6)


def test_noise_of_a_row_does_not_depend_on_the_batch() -> None:
    seeds = torch.tensor([5, 6, 7, 8])
    positions = torch.tensor([10, 20, 30, 40])
    together = gumbel_noise(seeds, positions, 1000)
    for row in range(4):
        alone = gumbel_noise(seeds[row : row + 1], positions[row : row + 1], 1000)
        assert torch.equal(alone[0], together[row])
    order = torch.tensor([2, 0, 3, 1])
    assert torch.equal(gumbel_noise(seeds[order], positions[order], 1000), together[order])


def test_noise_is_uniform_and_uncorrelated() -> None:
    seeds = torch.arange(8)
    noise = uniform_noise(seeds.repeat(8), torch.arange(8).repeat_interleave(8), 4096)
    assert 0 < float(noise.min()) < float(noise.max()) < 1
    counts = torch.histc(noise, bins=64, min=0, max=1)
    expected = noise.numel() / 64
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 63 + 4 * math.sqrt(2 * 63)
    correlation = torch.corrcoef(noise) - torch.eye(64)
    assert float(correlation.abs().max()) < 6 / math.sqrt(4096)


def test_gumbel_noise_is_finite_with_the_right_mean() -> None:
    noise = gumbel_noise(torch.arange(16), torch.zeros(16, dtype=torch.long), 50_000)
    assert bool(noise.isfinite().all())
    assert math.isclose(float(noise.mean()), 0.5772, abs_tol=0.01)
    assert math.isclose(float(noise.var()), math.pi**2 / 6, abs_tol=0.03)


def test_unseeded_requests_differ_and_follow_the_engine_seed() -> None:
    assert seed_of_request(7, "a", 0) == 7
    own = seed_of_request(None, "a", 0)
    assert own == seed_of_request(None, "a", 0)
    assert own != seed_of_request(None, "b", 0)
    assert own != seed_of_request(None, "a", 1)
