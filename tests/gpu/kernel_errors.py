"""The kernels against float64, over shapes, dtypes and options, on the device itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.gpu.machine import Machine
from tests.helpers.paged_texts import PagedTexts

__all__ = ["check_kernels"]

_LIMITS = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
"""Largest norm of a difference, as a share of the norm."""


@dataclass
class Case:
    """A layer, and steps of it."""

    name: str
    lens: list[int]
    steps: list[dict[int, int]]
    shape: dict[str, int]
    options: dict[str, Any] = field(default_factory=dict)
    spans: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Of the first step."""
    dtypes: tuple[torch.dtype, ...] = (torch.bfloat16,)
    """Few, because each is compiled anew."""


def check_kernels(machine: Machine) -> bool:
    """Print one line for each case; return whether all are within their limits."""
    cases = _gpu_cases() if machine.is_gpu else _tiny_cases()
    verdicts = [_check(machine, case, dtype) for case in cases for dtype in case.dtypes]
    return all(verdicts)


def _gpu_cases() -> list[Case]:
    llama = {"heads": 32, "kv_heads": 8, "key_dim": 128, "value_dim": 128, "block_size": 16}
    lens = [1500, 700, 130, 64, 17]
    mixed = [{0: 1400, 1: 600, 2: 129}, {0: 1, 1: 20, 2: 1, 3: 63}, {0: 99, 1: 80, 3: 1, 4: 17}]
    odd = {"heads": 9, "kv_heads": 3, "key_dim": 80, "value_dim": 96, "block_size": 5}
    many = {"heads": 71, "kv_heads": 1, "key_dim": 64, "value_dim": 64, "block_size": 32}
    gemma = {"heads": 16, "kv_heads": 8, "key_dim": 256, "value_dim": 256, "block_size": 16}
    images = {0: [(3, 700), (701, 1300)], 1: [(0, 600)]}
    return [
        Case("8 x 4 heads of 128", lens, mixed, llama, dtypes=tuple(_LIMITS)),
        Case("window 100", lens, mixed, llama, {"sliding_window": 100}),
        Case(
            "window 700, cap", lens, mixed, llama, {"sliding_window": 700, "logits_soft_cap": 2.0}
        ),
        Case("sinks", lens, mixed, llama, {"sinks": True}),
        Case("images", lens, mixed, llama, {"sliding_window": 900}, images),
        Case("3 x 3 heads of 80/96", lens, mixed, odd, dtypes=tuple(_LIMITS)),
        Case("71 heads share one", lens, mixed, many),
        Case("8 x 2 heads of 256, cap", lens, mixed, gemma, {"logits_soft_cap": 50.0}),
        Case(
            "9,000 tokens", [9000], [{0: 8990}, {0: 1}, {0: 9}], llama | {"heads": 4, "kv_heads": 1}
        ),
    ]


def _tiny_cases() -> list[Case]:
    shape = {"heads": 4, "kv_heads": 2, "key_dim": 16, "value_dim": 16, "block_size": 4}
    steps = [{0: 5, 1: 3}, {0: 1, 1: 2}]
    everything = {"sliding_window": 3, "logits_soft_cap": 2.0, "sinks": True}
    dtypes = (torch.float32, torch.float16)  # the interpreter cannot multiply bfloat16
    return [
        Case("plain", [6, 5], steps, shape, dtypes=dtypes),
        Case("all", [6, 5], steps, shape, everything, {0: [(1, 4)]}, dtypes),
    ]


def _check(machine: Machine, case: Case, dtype: torch.dtype) -> bool:
    from kernelserve.attention.triton_backend import TritonAttention

    texts = PagedTexts(
        TritonAttention(), case.lens, dtype=dtype, device=str(machine.device), **case.shape
    )
    options = {"scale": case.shape["key_dim"] ** -0.5} | case.options
    if options.get("sinks"):
        generator = torch.Generator().manual_seed(0)
        options["sinks"] = torch.randn(case.shape["heads"], generator=generator).to(machine.device)
    squares, wrong = 0.0, 0.0
    for number, step in enumerate(case.steps):
        spans = case.spans if number == 0 else {}
        before = list(texts.done)
        for text, rows in texts.step(step, spans=spans or None, **options).items():
            positions = range(before[text], texts.done[text])
            expected = texts.expected(
                text, positions, spans=spans.get(text, []), device=machine.device, **options
            )
            wrong += float((rows.to(expected) - expected).square().sum())
            squares += float(expected.square().sum())
    error = math.sqrt(wrong / squares)
    is_right = error <= _LIMITS[dtype]  # False for nan
    verdict = "ok" if is_right else f"WRONG, at most {_LIMITS[dtype]:.0e}"
    machine.say(
        f"{case.name:26} {str(dtype).removeprefix('torch.'):9} off by {error:.1e}  {verdict}"
    )
    return is_right
