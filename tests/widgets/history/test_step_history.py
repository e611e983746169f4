"""A StepHistory knows from the records alone what the scheduler knows, and forgets what has ended."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kernelserve.core.request import RequestStatus
from kernelserve.protocol import QueuedRequest, Refusal, SchedulerStats
from kernelserve_widgets.history import RequestLife, StepHistory, step_end
from tests.helpers.recorded_run import Fact, Moment, RunPlan, run_plans
from tests.helpers.scheduling import Engine
from tests.helpers.step_records import make_record

SETTINGS = settings(
    max_examples=120,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],  # shrinking takes minutes
)
_RUNNING = RequestStatus.RUNNING


def check_state(life: RequestLife, fact: Fact) -> None:
    assert life.num_computed_tokens == fact.num_computed_tokens
    assert life.num_generated_tokens == fact.num_generated_tokens
    assert life.num_preemptions == fact.num_preemptions
    waits = "preempted" if fact.num_preemptions else "waiting"
    if fact.status is _RUNNING:
        assert life.state in ("prefill", "decode")
    else:
        assert life.state == waits


def check_moment(history: StepHistory, moment: Moment, told: set[str]) -> None:
    """`told`: requests whose abort comes with a later record."""
    live = {life.request_id: life for life in history.live}
    assert live.keys() - told == moment.live.keys()
    for request_id, fact in moment.live.items():
        check_state(live[request_id], fact)
    step = moment.record.step
    for request_id in moment.record.num_scheduled_tokens:
        span = history.requests[request_id].span_at(step)
        assert span is not None
        assert span.kind == ("decode" if request_id in moment.decoding else "prefill")
    for request_id, fact in moment.live.items():
        if fact.status is not _RUNNING:
            span = history.requests[request_id].span_at(step)
            assert span is not None
            assert span.kind == ("preempted" if fact.num_preemptions else "queued")


def check_spans(life: RequestLife) -> None:
    assert life.has_ended
    assert life.spans[0].start == life.queued_at
    assert life.spans[-1].end == life.ended_at
    for before, after in pairwise(life.spans):
        assert before.end == after.start
        assert before.last_step < after.first_step
    assert all(span.start <= span.end for span in life.spans)


@SETTINGS
@given(plan=run_plans())
def test_records_tell_the_truth(plan: RunPlan) -> None:
    run = plan.perform()
    history = StepHistory()
    for moment in run.moments:
        history.add([moment.record])
        aborted_in_flight = run.aborted & (history.requests.keys() - moment.live.keys())
        check_moment(history, moment, aborted_in_flight)
        assert history.now >= step_end(moment.record)
    history.settle(run.stats)
    assert history.live == []
    for request_id, life in history.requests.items():
        check_spans(life)
        assert all(a.kind != b.kind for a, b in pairwise(life.spans))
        request = run.requests[request_id]
        assert life.num_prompt_tokens == request.num_prompt_tokens
        if request_id in run.aborted:
            assert life.state == "aborted"
        else:
            assert life.state == "finished"
        # Nothing in a record tells that a token was dropped: the last one of an abort or a failure.
        surplus = life.num_generated_tokens - request.num_output_tokens
        assert surplus in ((0, 1) if request_id in run.aborted | run.failed else (0,))
        assert len(life.token_times) == life.num_generated_tokens
        assert (life.first_token_at is not None) == (life.num_generated_tokens > 0)
    assert set(history.requests) | run.aborted == set(run.requests)


@SETTINGS
@given(plan=run_plans(), missing=st.sets(st.integers(0, 30), max_size=12))
def test_gaps_and_a_late_beginning_keep_the_running_ones_right(
    plan: RunPlan, missing: set[int]
) -> None:
    run = plan.perform()
    history = StepHistory()
    for moment in run.moments:
        if moment.record.step in missing:
            continue
        history.add([moment.record])
        aborted_in_flight = run.aborted - moment.live.keys()
        running = {life.request_id for life in history.live if life.is_running}
        truth = {i for i, fact in moment.live.items() if fact.status is _RUNNING}
        assert running - aborted_in_flight == truth
        assert len(history.live) - len(running) <= moment.record.num_waiting_reqs
    history.settle(run.stats)
    assert history.live == []
    for life in history.requests.values():
        check_spans(life)


@SETTINGS
@given(plan=run_plans(), cut=st.integers(0, 40), back=st.integers(0, 40))
def test_records_seen_before_change_nothing(plan: RunPlan, cut: int, back: int) -> None:
    run = plan.perform()
    once, again = StepHistory(), StepHistory()
    once.add(run.records)
    again.add(run.records[:cut])
    again.add(run.records[max(0, cut - back) :])
    again.add(run.records)
    assert list(again.records) == list(once.records)
    assert _lives(again) == _lives(once)


def _lives(history: StepHistory) -> list[tuple[object, ...]]:
    return [
        (
            life.request_id,
            life.state,
            life.num_computed_tokens,
            life.num_generated_tokens,
            [(span.kind, span.start, span.end) for span in life.spans],
        )
        for life in history.requests.values()
    ]


def test_a_life_from_queue_to_end() -> None:
    history = StepHistory()
    queued = [QueuedRequest("r1", 0.02, 6)]
    granted = {"r1": 4}
    history.add([make_record(1, granted, queued=queued, new_req_ids=["r1"])])
    (life,) = history.live
    assert (life.state, life.num_computed_tokens, life.num_prompt_tokens) == ("prefill", 4, 6)
    assert life.first_token_at is None
    history.add([make_record(2, {"r1": 2})])
    assert (life.state, life.num_generated_tokens) == ("decode", 1)
    assert life.first_token_at == pytest.approx(0.21)
    end = make_record(3, {"r1": 1}, num_decode_tokens=1, finished_req_ids=["r1"])
    history.add([end])
    assert history.live == []
    assert life.ended_at == pytest.approx(0.31)
    assert list(life.token_times) == pytest.approx([0.21, 0.31])
    spans = [(s.kind, round(s.start, 3), round(s.end, 3)) for s in life.spans]
    assert spans == [("queued", 0.02, 0.1), ("prefill", 0.1, 0.21), ("decode", 0.21, 0.31)]


def test_why_requests_wait() -> None:
    history = StepHistory()
    queued = [QueuedRequest(i, 0.0, 4) for i in ("r1", "r2", "r3")]
    refusals = [Refusal("r2", "blocks", 12, 5)]
    history.add(
        [
            make_record(
                0,
                {"r1": 4},
                queued=queued,
                new_req_ids=["r1"],
                refusals=refusals,
                num_waiting_reqs=2,
            )
        ]
    )
    running, first, second = history.live
    assert (running.label, running.waiting_reason) == ("r1", "")
    assert (first.label, first.waiting_reason) == ("r2", "needs 12 blocks, 5 free")
    assert (second.label, second.waiting_reason) == ("r3", "behind r2")


def test_the_refused_one_is_first_even_if_it_came_last() -> None:
    history = StepHistory()
    queued = [QueuedRequest(i, 0.0, 4) for i in ("r1", "r2", "r3")]
    refusals = [Refusal("r3", "max_num_seqs", 2, 1)]
    history.add(
        [
            make_record(
                0,
                {"r1": 4},
                queued=queued,
                new_req_ids=["r1"],
                refusals=refusals,
                num_waiting_reqs=2,
            )
        ]
    )
    assert [life.label for life in history.live] == ["r1", "r3", "r2"]
    assert history.live[2].waiting_reason == "behind r3"


def test_cached_tokens_are_those_of_the_first_admission() -> None:
    engine = Engine(num_blocks=7)
    engine.finish_alone("warm", list(range(8)), max_tokens=1)
    engine.submit("a", list(range(8)), max_tokens=12)
    engine.submit("b", list(range(20, 28)), max_tokens=12)
    engine.run()
    history = StepHistory()
    history.add(engine.scheduler.step_records)
    a, b = history.requests["a"], history.requests["b"]
    assert a.num_cached_tokens == engine.cached_tokens("a") == 4
    assert b.num_cached_tokens == engine.cached_tokens("b") == 0
    assert b.num_preemptions == engine.scheduler.stats().num_preemptions > 0


def test_a_prompt_of_unknown_length_is_learned() -> None:
    history = StepHistory()
    history.add([make_record(7, {"r1": 4})])
    (life,) = history.live
    assert (life.state, life.num_prompt_tokens, life.is_uncertain) == ("prefill", 0, True)
    history.add([make_record(8, {"r1": 3})])
    history.add([make_record(9, {"r1": 1}, num_decode_tokens=1)])
    assert (life.state, life.num_prompt_tokens, life.num_generated_tokens) == ("decode", 7, 2)
    assert life.first_token_at == pytest.approx(0.81)
    assert [(s.kind, s.first_step, s.last_step) for s in life.spans[:1]] == [("prefill", 7, 8)]
    assert life.spans[1].first_step == 9


def test_a_request_in_the_midst_of_its_answer_decodes() -> None:
    history = StepHistory()
    history.add([make_record(7, {"r1": 1, "r2": 1}, num_decode_tokens=2)])
    history.add([make_record(8, {"r1": 1, "r2": 1}, num_decode_tokens=2)])
    assert [(life.state, life.num_generated_tokens) for life in history.live] == [("decode", 2)] * 2


def test_another_engine_starts_anew() -> None:
    history = StepHistory()
    history.add([make_record(5, {"r1": 4}), make_record(6, {"r1": 4})])
    history.add([make_record(0, {"r2": 4}, timestamp=9.0)])
    assert [life.label for life in history.live] == ["r2"]
    assert [record.step for record in history.records] == [0]
    assert history.last_step == 0
    assert history.now == pytest.approx(9.01)


def test_a_clock_that_jumps_back_is_another_engine_too() -> None:
    history = StepHistory()
    history.add([make_record(5, {"r1": 4}, timestamp=100.0)])
    history.add([make_record(9, {"r2": 4}, timestamp=3.0)])
    assert [life.label for life in history.live] == ["r2"]


def test_gauges_at_zero_close_what_no_record_ends() -> None:
    history = StepHistory()
    history.add([make_record(0, {"r1": 4}, queued=[QueuedRequest("r1", 0.0, 9)])])
    history.settle(SchedulerStats(num_running_reqs=1, num_steps=1, num_total_blocks=9))
    assert len(history.live) == 1
    history.settle(SchedulerStats(num_steps=1, num_total_blocks=9))
    assert history.live == []
    life = history.requests["r1"]
    assert life.state == "aborted"
    assert life.ended_at == pytest.approx(0.01)
    # The record that tells of it comes with the next request, minutes later.
    history.add([make_record(1, {"r2": 4}, timestamp=99.0, aborted_req_ids=["r1"])])
    assert life.state == "aborted"
    assert life.ended_at == pytest.approx(0.01)


def test_stats_older_than_the_records_close_nothing() -> None:
    history = StepHistory()
    history.add([make_record(4, {"r1": 4}), make_record(5, {"r1": 4})])
    history.settle(SchedulerStats(num_steps=4, num_total_blocks=9))
    assert len(history.live) == 1


def test_stats_newer_than_the_records_are_corrected_by_them() -> None:
    history = StepHistory()
    queued = [QueuedRequest("r1", 0.0, 4)]
    history.add([make_record(0, {"r1": 4}, queued=queued, new_req_ids=["r1"])])
    history.settle(SchedulerStats(num_steps=2, num_total_blocks=9))
    assert history.live == []
    last = make_record(1, {"r1": 1}, num_decode_tokens=1, finished_req_ids=["r1"])
    history.add([last])
    life = history.requests["r1"]
    assert (life.state, life.num_generated_tokens) == ("finished", 2)
    assert life.ended_at == pytest.approx(0.11)
    check_spans(life)


def test_an_engine_that_is_gone_closes_everything() -> None:
    history = StepHistory()
    history.add([make_record(0, {"r1": 4})])
    history.settle(SchedulerStats())
    assert history.live == []


def test_ended_lives_and_records_are_bounded() -> None:
    history = StepHistory(max_records=10, max_ended=5)
    for step in range(100):
        request_id = f"r{step}"
        history.add([make_record(step, {request_id: 2}, finished_req_ids=[request_id])])
    assert list(history.requests) == [f"r{step}" for step in range(95, 100)]
    assert [record.step for record in history.records] == list(range(90, 100))


def test_a_record_of_64_requests_is_cheap() -> None:
    ids = [f"request-{i}-0123abcd" for i in range(64)]
    queued = [QueuedRequest(i, 0.0, 4) for i in ids]
    history = StepHistory()
    history.add([make_record(0, dict.fromkeys(ids, 4), queued=queued, new_req_ids=ids)])
    records = [
        make_record(step, dict.fromkeys(ids, 1), num_decode_tokens=64) for step in range(1, 601)
    ]
    best = float("inf")
    for first in range(0, 600, 100):
        start = time.process_time()  # of this process alone, however busy the machine is
        history.add(records[first : first + 100])
        best = min(best, (time.process_time() - start) / 100)
    assert best < 0.3e-3
