"""A stage of training takes as much processor time as it may, and its learning rate follows that."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import torch

__all__ = ["Schedule"]

_WARM_UP_SHARE = 0.03
_LAST_SHARE = 0.02


class Schedule:
    """Rises at first, then falls along a cosine until `minutes` of the process's own time are over.

    So a machine that is busy with something else makes the training longer, not worse.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        minutes: float,
        clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._optimizer = optimizer
        self._peaks = [group["lr"] for group in optimizer.param_groups]
        self._seconds = minutes * 60
        self._clock = clock
        self.share = 0.0
        """Of the time that is over, 0 to 1."""

    def steps(self) -> Iterator[int]:
        """Yield the numbers of the steps, from 0, with the learning rates set for each."""
        start = self._clock()
        step = 0
        while (passed := self._clock() - start) < self._seconds:
            share = self.share = passed / self._seconds
            fallen = _LAST_SHARE + (1 - _LAST_SHARE) * (1 + math.cos(math.pi * share)) / 2
            factor = min(1.0, share / _WARM_UP_SHARE + 0.05) * fallen
            for group, peak in zip(self._optimizer.param_groups, self._peaks, strict=True):
                group["lr"] = peak * factor
            yield step
            step += 1
