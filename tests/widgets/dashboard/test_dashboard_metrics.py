"""The numbers of a frame are those of the records and the gauges."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kernelserve_widgets.dashboard.dashboard_metrics import DashboardMetrics
from kernelserve_widgets.dashboard.dashboard_numbers import NUM_STEPS


def test_steps_are_the_last_records(watch):
    watched = watch(max_num_seqs=3, max_num_batched_tokens=16)
    for index in range(5):
        watched.engine.submit(f"r{index}", [index] * 11, max_tokens=60)
    numbers = watched.run()
    records = watched.records[-NUM_STEPS:]
    assert len(watched.records) > 100
    assert numbers.steps == [record.step for record in records]
    assert numbers.prefill == [record.num_prefill_tokens for record in records]
    assert numbers.decode == [record.num_decode_tokens for record in records]
    assert numbers.budget == [16] * len(records)
    assert {reason for reason in numbers.refused if reason} <= {"max_num_seqs", "budget"}
    assert sum(map(bool, numbers.refused)) == sum(bool(record.refusals) for record in records)


def test_only_the_last_200_steps_are_kept(watch):
    watched = watch()
    watched.engine.submit("a", [1], max_tokens=250)
    numbers = watched.run()
    assert numbers.steps == list(range(50, 250))


def test_gauges_are_those_of_the_stats(watch):
    watched = watch(max_num_seqs=2)
    for index in range(4):
        watched.engine.submit(f"r{index}", [index] * 9, max_tokens=9)
    numbers = watched.step(3)
    stats = watched.stats
    assert (numbers.num_running, numbers.num_waiting) == (2, 2)
    assert (numbers.num_used_blocks, numbers.num_cached_blocks, numbers.num_free_blocks) == (
        stats.num_used_blocks,
        stats.num_cached_blocks,
        stats.num_free_blocks,
    )
    assert numbers.num_used_blocks + numbers.num_cached_blocks + numbers.num_free_blocks == 64
    assert numbers.hit_rate == stats.prefix_cache_stats.hit_rate


def test_every_generated_token_is_counted_once(watch):
    watched = watch(num_blocks=9, max_num_seqs=4)  # so small that requests are preempted
    for index in range(6):
        watched.engine.submit(f"r{index}", [index] * 7, max_tokens=9)
    numbers = watched.run()
    generated = sum(len(received.token_ids) for received in watched.engine.received.values())
    assert generated == 54
    assert numbers.num_preemptions > 0
    assert sum(numbers.preempted) == numbers.num_preemptions
    assert watched.metrics.tokens.num_tokens == generated


def test_one_tick_after_everything_ended_the_gauges_are_zero(watch):
    watched = watch()
    watched.engine.submit("a", [1, 2, 3], max_tokens=20)
    watched.engine.submit("b", [4], max_tokens=20)
    numbers = watched.step(5)
    assert (numbers.num_running, numbers.throughput > 0, numbers.is_idle) == (2, True, False)
    watched.engine.abort("a", "b")  # no further step tells of it
    numbers = watched.look()
    assert numbers.is_idle
    assert (numbers.num_running, numbers.num_waiting, numbers.num_used_blocks) == (0, 0, 0)
    assert numbers.throughput == 0
    assert [row.state for row in numbers.rows] == ["aborted", "aborted"]


def test_curves_are_new_once_a_second_while_something_runs_and_at_its_end(watch):
    watched = watch()
    watched.engine.submit("a", [1], max_tokens=90)
    numbers, curves, ends = watched.step(), [], []
    while watched.engine.scheduler.has_requests():
        watched.engine.now -= 0.75  # a step takes a quarter of a second
        numbers = watched.step()
        if not numbers.is_idle:
            curves.append(numbers.bins)
            ends.append(watched.metrics.history.now)
    assert 15 < len(set(map(int, ends))) < len(ends) / 3
    for (before, after), (early, late) in zip(pairwise(curves), pairwise(ends), strict=True):
        assert (after is before) == (int(early) == int(late))
    assert numbers.bins == watched.metrics.tokens.bins()
    assert numbers.first_tokens == watched.metrics.tokens.first_tokens()


def test_nothing_new_is_no_news(watch):
    watched = watch()
    watched.engine.submit("a", [1], max_tokens=2)
    watched.run()
    assert watched.metrics.update([], watched.stats) is False
    watched.engine.submit("b", [1], max_tokens=2)
    assert watched.metrics.update([], watched.stats) is True  # one waits now


def test_without_an_engine_there_are_only_zeros():
    numbers = DashboardMetrics().numbers()
    assert numbers.is_idle
    assert (numbers.throughput, numbers.hit_rate, numbers.first_token_latency) == (0.0, None, None)
    assert [*numbers.steps, *numbers.rows, *numbers.bins] == []


def test_rows_tell_progress_and_reasons(watch):
    watched = watch(max_num_seqs=2, max_num_batched_tokens=12)
    watched.engine.submit("a", [1] * 4, max_tokens=30)
    watched.engine.submit("b", list(range(20)), max_tokens=5)
    watched.engine.submit("c", [3] * 4, max_tokens=5)
    watched.engine.submit("d", [3] * 4, max_tokens=5)
    rows = watched.step().rows
    assert [row.label for row in rows] == ["a", "b", "c", "d"]
    assert rows[0].state == "decode"
    assert rows[1].state == "prefill"
    assert rows[1].text.startswith("8 of 20 tokens computed")
    assert rows[1].computed == pytest.approx(8 / 20)
    assert [row.state for row in rows[2:]] == ["waiting", "waiting"]
    assert rows[2].text == "no budget left"
    assert rows[3].text == "behind c"


def test_many_requests_are_summed_up(watch):
    watched = watch(max_num_seqs=6)
    for index in range(20):
        watched.engine.submit(f"r{index}", [index], max_tokens=50)
    rows = watched.step(2).rows
    assert len(rows) == 8
    assert [row.state for row in rows[:7]] == ["decode"] * 4 + ["waiting"] * 3
    assert rows[4].text == "all 6 seats are taken"
    assert (rows[7].label, rows[7].text) == ("", "2 more running and 11 more waiting")


def test_the_cached_part_of_a_prompt_is_told(watch):
    watched = watch(max_num_batched_tokens=12)
    watched.engine.finish_alone("a", list(range(20)), max_tokens=1)
    watched.look()
    watched.engine.submit("b", list(range(40)), max_tokens=1)
    row = watched.step().rows[0]
    assert (row.label, row.cached, row.computed) == ("b", 20 / 40, 32 / 40)
    assert row.text == "32 of 40 tokens computed, 20 cached"
