"""Throughput and latencies out of the times of tokens."""

from __future__ import annotations

import pytest

from kernelserve.protocol import QueuedRequest, SchedulerStats, StepRecord
from kernelserve_widgets.dashboard.dashboard_metrics import DashboardMetrics
from kernelserve_widgets.dashboard.token_window import quantile

BUSY = SchedulerStats(num_running_reqs=1, num_total_blocks=10)


def record(step: int, end: float, *, first: bool = False, seconds: float = 0.1) -> StepRecord:
    """A step of one request that gives it a token at `end`; the first one computes its prompt of four."""
    tokens = 4 if first else 1
    one = StepRecord(
        step, end - seconds, 64, {"a": tokens}, tokens if first else 0, 0 if first else 1,
        ["a"] if first else [], [], [], [], [], 1, 0, 1, 0, 9, execute_time=seconds,
    )  # fmt: skip
    if first:
        one.queued = [QueuedRequest("a", end - 0.5, 4)]
        one.num_cached_tokens = {"a": 0}
    return one


def metrics_of(ends: list[float]) -> DashboardMetrics:
    metrics = DashboardMetrics()
    records = [record(step, end, first=step == 0) for step, end in enumerate(ends)]
    for one in records:
        metrics.update([one], BUSY)
    return metrics


def test_throughput_is_that_of_the_last_three_seconds():
    ends = [100.0 + index * 0.1 for index in range(101)]
    assert metrics_of(ends).numbers().throughput == pytest.approx(10.0)


def test_throughput_of_a_short_run_is_that_of_its_duration():
    # Four tokens from 99.9, when the first step began, to 100.3.
    assert metrics_of([100.0, 100.1, 100.2, 100.3]).numbers().throughput == pytest.approx(10.0)


def test_latencies_are_the_gaps_and_the_way_from_the_queue():
    numbers = metrics_of([100.0, 100.1, 100.3, 100.4, 100.5]).numbers()
    assert numbers.first_token_latency == pytest.approx(0.5)
    assert numbers.token_latency == pytest.approx(0.1)
    assert numbers.slow_token_latency == pytest.approx(0.2)
    [(age, latency)] = numbers.first_tokens
    assert [age, latency] == pytest.approx([0.5, 0.5])


def test_bins_hold_every_token_of_the_last_half_minute():
    ends = [100.05 + index * 0.25 for index in range(200)]  # 50 s
    bins = metrics_of(ends).numbers().bins
    assert len(bins) in (60, 61)
    assert all(one.tokens_per_second == pytest.approx(4.0) for one in bins[:-1])
    assert all(one.latency == pytest.approx(0.25) for one in bins)
    assert all(0 <= one.age < 30 for one in bins)
    ages = [one.age for one in bins]
    assert ages == sorted(ages, reverse=True)


def test_a_break_between_two_bursts_counts_no_tokens():
    bins = metrics_of([100.0, 100.1, 110.0, 110.1]).numbers().bins
    total = sum(one.tokens_per_second * 0.5 for one in bins[:-1])
    assert total == pytest.approx(3.0)  # the last bin is cut: one more
    assert sum(one.tokens_per_second == 0 for one in bins) >= 18


def test_records_in_one_go_and_one_by_one_give_the_same():
    ends = [100.0 + index * 0.1 for index in range(40)]
    at_once = DashboardMetrics()
    at_once.update([record(step, end, first=step == 0) for step, end in enumerate(ends)], BUSY)
    assert at_once.numbers() == metrics_of(ends).numbers()


def test_tokens_beyond_what_a_life_remembers_are_counted():
    ends = [100.0 + index * 0.001 for index in range(1000)]
    metrics = DashboardMetrics()
    metrics.update(
        [record(step, end, first=step == 0, seconds=0.001) for step, end in enumerate(ends)], BUSY
    )
    assert metrics.tokens.num_tokens == 1000


def test_quantiles_are_values_that_were_there():
    assert quantile([], 0.5) is None
    assert quantile([3.0], 0.95) == 3.0
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.0
    assert quantile([float(value) for value in range(1, 101)], 0.95) == 95.0


def test_a_long_fast_run_has_latencies_in_every_bin():
    ends = [
        100.0 + index * 0.004 for index in range(8000)
    ]  # 32 s, more tokens than a list may hold
    metrics = DashboardMetrics()
    for begin in range(0, 8000, 100):
        steps = range(begin, begin + 100)
        metrics.update([record(i, ends[i], first=i == 0, seconds=0.004) for i in steps], BUSY)
    numbers = metrics.numbers()
    assert len(numbers.bins) in (60, 61)
    assert all(one.latency == pytest.approx(0.004) for one in numbers.bins)
    assert numbers.throughput == pytest.approx(250, rel=0.01)
