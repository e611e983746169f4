"""Turns step records and gauges into the numbers of a frame. No drawing, no engine, no clock."""

from __future__ import annotations

import math
from itertools import islice
from typing import NamedTuple

from kernelserve.protocol import SchedulerStats, StepRecord
from kernelserve_widgets.dashboard.dashboard_numbers import NUM_STEPS, DashboardNumbers
from kernelserve_widgets.dashboard.encoder_numbers import EncoderNumbers
from kernelserve_widgets.dashboard.memory_numbers import MemoryNumbers
from kernelserve_widgets.dashboard.request_row import MAX_ROWS, RequestRow, list_requests
from kernelserve_widgets.dashboard.token_window import TimeBin, TokenWindow, quantile
from kernelserve_widgets.history.step_history import StepHistory

__all__ = ["DashboardMetrics"]

_CURVES_S = 1.0


class _Curves(NamedTuple):
    """What is told of the last half minute."""

    bins: list[TimeBin]
    first_tokens: list[tuple[float, float]]
    encodes: list[tuple[float, float]]
    first_token_latency: float | None
    token_latency: float | None
    slow_token_latency: float | None


class DashboardMetrics:
    """Follows one engine. Used by one thread at a time.

    While something runs, latencies and what is told of the last half minute become new once a second of the engine's
    clock: nobody reads them faster, and they are half of the work of a frame.
    """

    def __init__(self) -> None:
        self.history = StepHistory(max_records=NUM_STEPS, max_ended=200)
        self.tokens = TokenWindow()
        self._stats = SchedulerStats()
        self._curves: _Curves | None = None
        self._curves_at = -1.0

    @property
    def next_step(self) -> int:
        """The first step that is not known yet."""
        return self.history.last_step + 1

    def update(self, records: list[StepRecord], stats: SchedulerStats) -> bool:
        """Take in new records, and the gauges that were read after them. False if that is no news."""
        if not records and stats == self._stats:
            return False
        self.history.add(records)
        self.history.settle(stats)
        self.tokens.add(records, self.history.requests, self.history.now)
        self._stats = stats
        return True

    def numbers(self, memory: MemoryNumbers | None = None) -> DashboardNumbers:
        """Return what a frame shows now."""
        stats, tokens = self._stats, self.tokens
        records = self.history.records
        cache = stats.prefix_cache_stats
        idle = not stats.num_running_reqs and not stats.num_waiting_reqs
        curves = self._update_curves(idle)
        return DashboardNumbers(
            num_running=stats.num_running_reqs,
            num_waiting=stats.num_waiting_reqs,
            num_total_blocks=stats.num_total_blocks,
            num_used_blocks=stats.num_used_blocks,
            num_cached_blocks=stats.num_cached_blocks,
            num_free_blocks=stats.num_free_blocks,
            num_preemptions=stats.num_preemptions,
            hit_rate=cache.hit_rate if cache.queries else None,
            throughput=0.0 if idle else tokens.throughput,
            first_token_latency=curves.first_token_latency,
            token_latency=curves.token_latency,
            slow_token_latency=curves.slow_token_latency,
            steps=[record.step for record in records],
            prefill=[record.num_prefill_tokens for record in records],
            decode=[record.num_decode_tokens for record in records],
            budget=[record.token_budget for record in records],
            preempted=[len(record.preempted_req_ids) for record in records],
            refused=[record.refusals[0].reason if record.refusals else "" for record in records],
            bins=curves.bins,
            first_tokens=curves.first_tokens,
            rows=self._rows(),
            memory=memory,
            encoder=EncoderNumbers.of(stats, curves.encodes),
        )

    def _update_curves(self, idle: bool) -> _Curves:
        tokens, now = self.tokens, self.history.now
        at = now if idle else math.floor(now / _CURVES_S) * _CURVES_S
        if self._curves is None or at != self._curves_at:
            self._curves_at = at
            self._curves = _Curves(
                tokens.bins(),
                tokens.first_tokens(),
                tokens.encodes(),
                quantile(tokens.first_token_latencies, 0.5),
                tokens.inter_token_latency(0.5),
                tokens.inter_token_latency(0.95),
            )
        return self._curves

    def _rows(self) -> list[RequestRow]:
        history = self.history
        lives = reversed(history.requests.values())
        ended = list(islice((life for life in lives if life.has_ended), MAX_ROWS))
        return list_requests(history.live, ended, history.names)
