"""The machine under test: its clock, and the ceilings that everything is compared with."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise

import torch

__all__ = ["Machine"]

_WARM_UPS, _RUNS = 3, 20


class Machine:
    """A GPU, or the CPU standing in for one with sizes that take no time."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self.is_gpu = self.device.type == "cuda"
        self.name = (
            torch.cuda.get_device_name()
            if self.is_gpu
            else "this CPU, interpreted: no figure below means a thing"
        )
        self.dtype = torch.bfloat16 if self.is_gpu else torch.float32
        self.copy_bytes_per_s = 0.0
        self.matmul_flops_per_s = 0.0

    def say(self, line: str) -> None:
        """Print a line at once."""
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def measure_ceilings(self) -> None:
        """A copy far larger than the caches, and a large product of random 16-bit matrices."""
        size = 2**31 if self.is_gpu else 2**16
        source, target = (
            torch.empty(size, dtype=torch.uint8, device=self.device) for _ in range(2)
        )
        self.copy_bytes_per_s = 2 * size / self.seconds(lambda: target.copy_(source))
        n = 8192 if self.is_gpu else 64
        a, b = (torch.randn(n, n, device=self.device).to(self.dtype) for _ in range(2))
        self.matmul_flops_per_s = 2 * n**3 / self.seconds(lambda: a @ b)
        self.say(f"ceilings: copy {self.copy_bytes_per_s / 1e9:.0f} GB/s (read + written), "
                 f"{self.dtype} product {self.matmul_flops_per_s / 1e12:.1f} TFLOP/s")  # fmt: skip

    def seconds(self, run: Callable[[], object]) -> float:
        """Median time of one call, from device events; the host may run ahead."""
        if not self.is_gpu:
            start = time.perf_counter()
            run()
            return time.perf_counter() - start
        for _ in range(_WARM_UPS):
            run()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(_RUNS + 1)]
        marks[0].record()
        for mark in marks[1:]:
            run()
            mark.record()
        torch.cuda.synchronize()
        return statistics.median(float(a.elapsed_time(b)) for a, b in pairwise(marks)) / 1000

    def tidy(self) -> None:
        """Give memory back to the device, so that what is said to be free can be had."""
        gc.collect()
        if self.is_gpu:
            torch.cuda.empty_cache()

    def share_of_copy(self, num_bytes: float, seconds: float) -> str:
        """`num_bytes` in `seconds` in words."""
        rate = num_bytes / seconds
        return f"{rate / 1e9:6.0f} GB/s = {rate / self.copy_bytes_per_s:4.0%} of a copy"

    def share_of_product(self, flops: float, seconds: float) -> str:
        """`flops` in `seconds` in words."""
        rate = flops / seconds
        return f"{rate / 1e12:6.1f} TFLOP/s = {rate / self.matmul_flops_per_s:4.0%} of a product"
