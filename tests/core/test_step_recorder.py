from __future__ import annotations

from tests.helpers.scheduling import Engine


def test_a_record_tells_who_got_what_and_who_was_refused() -> None:
    engine = Engine(max_num_seqs=2, max_num_batched_tokens=10)
    engine.submit("a", [1, 2, 3], max_tokens=2)
    engine.submit("b", list(range(20)), max_tokens=1)
    engine.submit("c", [4], max_tokens=1)
    engine.step()
    (record,) = engine.scheduler.step_records
    assert (record.step, record.timestamp, record.token_budget) == (0, engine.now, 10)
    assert record.num_scheduled_tokens == {"a": 3, "b": 7}
    assert (record.num_prefill_tokens, record.num_decode_tokens) == (10, 0)
    assert (record.new_req_ids, record.resumed_req_ids) == (["a", "b"], [])
    assert [(r.request_id, r.reason) for r in record.refusals] == [("c", "budget")]
    assert (record.num_running_reqs, record.num_waiting_reqs) == (2, 1)
    assert (record.num_used_blocks, record.num_cached_blocks, record.num_free_blocks) == (3, 0, 61)
    assert record.finished_req_ids == []

    engine.step()
    record = engine.scheduler.step_records[-1]
    assert record.num_scheduled_tokens == {"a": 1, "b": 9}
    assert (record.num_prefill_tokens, record.num_decode_tokens) == (9, 1)
    assert record.finished_req_ids == ["a"]
    # While the step ran a was there still.
    assert (record.num_running_reqs, record.num_used_blocks) == (2, 5)

    engine.step()
    record = engine.scheduler.step_records[-1]
    assert record.num_scheduled_tokens == {"b": 4, "c": 1}
    assert record.new_req_ids == ["c"]
    engine.run()


def test_seats_are_a_reason_of_refusal() -> None:
    engine = Engine(max_num_seqs=1)
    engine.submit("a", [1])
    engine.submit("b", [2])
    engine.submit("c", [3])
    engine.step()
    (refusal,) = engine.scheduler.step_records[-1].refusals
    assert (refusal.request_id, refusal.reason) == ("b", "max_num_seqs")
    assert (refusal.needed, refusal.available) == (2, 1)


def test_running_requests_without_tokens_are_recorded() -> None:
    engine = Engine(max_num_seqs=3)
    for req_id in ("a", "b", "c"):
        engine.submit(req_id, [1, 2], max_tokens=5)
    engine.step()
    engine.scheduler.configure(max_num_seqs=1, max_num_batched_tokens=1)
    engine.step()
    record = engine.scheduler.step_records[-1]
    assert record.num_scheduled_tokens == {"a": 1}
    assert [(r.request_id, r.reason) for r in record.refusals] == [("b", "budget"), ("c", "budget")]
    engine.run()


def test_preemption_and_resumption_are_recorded() -> None:
    engine = Engine(num_blocks=7)
    engine.submit("a", list(range(8)), max_tokens=12)
    engine.submit("b", list(range(20, 28)), max_tokens=12)
    engine.run()
    records = engine.scheduler.step_records
    preempted = [record.step for record in records if record.preempted_req_ids == ["b"]]
    resumed = [record.step for record in records if record.resumed_req_ids == ["b"]]
    assert len(preempted) == len(resumed) == engine.scheduler.stats().num_preemptions > 0
    assert all(p < r for p, r in zip(preempted, resumed, strict=True))
    assert [record.new_req_ids for record in records if record.new_req_ids] == [["a", "b"]]
    assert [record.step for record in records] == list(range(len(records)))


def test_only_the_last_records_are_kept() -> None:
    engine = Engine(num_step_records=3)
    engine.finish_alone("a", [1], max_tokens=6)
    assert [record.step for record in engine.scheduler.step_records] == [3, 4, 5]
    assert engine.scheduler.stats().num_steps == 6


def test_each_request_is_queued_in_one_record_with_the_time_of_its_arrival() -> None:
    engine = Engine(max_num_seqs=1)
    first = engine.submit("a", [1, 2, 3], max_tokens=3)
    second = engine.submit("b", [4], max_tokens=1)
    engine.step()
    third = engine.submit("c", [5, 6], max_tokens=1)
    engine.run()
    queued = [[*record.queued] for record in engine.scheduler.step_records]
    assert [(q.request_id, q.timestamp, q.num_prompt_tokens) for q in queued[0]] == [
        ("a", first.queued_at, 3),
        ("b", second.queued_at, 1),
    ]
    assert [(q.request_id, q.timestamp) for q in queued[1]] == [("c", third.queued_at)]
    assert not any(queued[2:])


def test_cached_tokens_are_those_of_the_admission() -> None:
    engine = Engine()
    engine.finish_alone("a", list(range(10)), max_tokens=1)
    engine.finish_alone("b", list(range(10)), max_tokens=1)
    records = engine.scheduler.step_records
    assert [record.num_cached_tokens for record in records] == [{"a": 0}, {"b": 8}]
    assert engine.scheduler.stats().prefix_cache_stats.hits == 8


def test_a_resumed_request_counts_its_cached_tokens_again() -> None:
    engine = Engine(num_blocks=7)
    engine.submit("a", list(range(8)), max_tokens=12)
    engine.submit("b", list(range(20, 28)), max_tokens=12)
    engine.run()
    records = engine.scheduler.step_records
    resumed = [r.num_cached_tokens["b"] for r in records if r.resumed_req_ids]
    assert len(resumed) == engine.scheduler.stats().num_preemptions > 0
    assert sum(resumed) == engine.scheduler.stats().prefix_cache_stats.preempted_hits
    for record in records:
        assert record.num_cached_tokens.keys() == {*record.new_req_ids, *record.resumed_req_ids}


def test_aborts_are_in_the_next_record_and_ends_in_their_own() -> None:
    engine = Engine(max_num_seqs=2)
    for req_id in ("a", "b", "c"):
        engine.submit(req_id, [1, 2], max_tokens=3)
    plan = engine.schedule()
    engine.abort("a")  # while the step runs
    engine.execute_and_update(plan)
    engine.abort("c", "unknown")  # between two steps
    engine.run()
    records = engine.scheduler.step_records
    assert [record.aborted_req_ids for record in records] == [[], ["a", "c"], []]
    assert [record.finished_req_ids for record in records] == [[], [], ["b"]]


def test_a_request_that_comes_and_goes_between_two_records_is_in_none() -> None:
    engine = Engine()
    engine.submit("a", [1], max_tokens=1)
    engine.submit("b", [2], max_tokens=1)
    engine.abort("a")
    engine.run()
    (record,) = engine.scheduler.step_records
    assert [queued.request_id for queued in record.queued] == ["b"]
    assert record.aborted_req_ids == []


def test_an_abort_without_another_step_waits_for_the_next_record() -> None:
    engine = Engine()
    engine.submit("a", [1], max_tokens=9)
    engine.step()
    engine.abort("a")
    engine.run()  # tells the runner; leaves no record
    assert len(engine.scheduler.step_records) == 1
    assert engine.scheduler.last_record is None
    engine.finish_alone("b", [2], max_tokens=1)
    assert engine.scheduler.step_records[-1].aborted_req_ids == ["a"]
