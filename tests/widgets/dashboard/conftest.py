"""A recorded run of the real scheduler, and what a dashboard makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from kernelserve.protocol import KVCacheMap, SchedulerStats, StepRecord
from kernelserve_widgets.dashboard.dashboard_metrics import DashboardMetrics
from kernelserve_widgets.dashboard.dashboard_numbers import DashboardNumbers
from tests.helpers.scheduling import Engine


@dataclass
class Watched:
    """A scheduler with metrics that are updated after each step, as the flusher does."""

    engine: Engine
    metrics: DashboardMetrics = field(default_factory=DashboardMetrics)

    @property
    def stats(self) -> SchedulerStats:
        return self.engine.scheduler.stats()

    @property
    def records(self) -> list[StepRecord]:
        return list(self.engine.scheduler.step_records)

    @property
    def block_map(self) -> KVCacheMap:
        return self.engine.scheduler.kv_cache_map()

    def step(self, count: int = 1) -> DashboardNumbers:
        for _ in range(count):
            self.engine.step()
        return self.look()

    def look(self) -> DashboardNumbers:
        """What a tick sees."""
        new = [record for record in self.records if record.step >= self.metrics.next_step]
        self.metrics.update(new, self.stats)
        return self.metrics.numbers()

    def run(self) -> DashboardNumbers:
        while self.engine.scheduler.has_requests():
            self.step()
        return self.look()


@pytest.fixture
def watch():
    def make(**options: Any) -> Watched:
        return Watched(Engine(**options))

    return make
