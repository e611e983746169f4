"""A stage of training takes as long as it may: its learning rate follows the clock."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import torch

__all__ = ["Schedule"]

_WARM_UP_SHARE = 0.03
_LAST_SHARE = 0.02


class Schedule:
    """Rises at first, then falls along a cosine until `minutes` are over."""

    def __init__(self, optimizer: torch.optim.Optimizer, minutes: float) -> None:
        self._optimizer = optimizer
        self._peaks = [group["lr"] for group in optimizer.param_groups]
        self._seconds = minutes * 60
        self.share = 0.0
        """Of the time that is over, 0 to 1."""

    def steps(self) -> Iterator[int]:
        """Yield the numbers of the steps, from 0, with the learning rates set for each."""
        start = time.monotonic()
        step = 0
        while (passed := time.monotonic() - start) < self._seconds:
            share = self.share = passed / self._seconds
            fallen = _LAST_SHARE + (1 - _LAST_SHARE) * (1 + math.cos(math.pi * share)) / 2
            factor = min(1.0, share / _WARM_UP_SHARE + 0.05) * fallen
            for group, peak in zip(self._optimizer.param_groups, self._peaks, strict=True):
                group["lr"] = peak * factor
            yield step
            step += 1
