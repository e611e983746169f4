"""The traps of shared/reference/engine-behaviour.md section 11 that concern scheduling and the KV cache, by number."""

from __future__ import annotations

import pytest

from kernelserve.core.block_hash import BlockHasher, hash_block
from kernelserve.core.request import RequestStatus
from kernelserve.core.scheduler_output import ModelRunnerOutput
from kernelserve.errors import InvalidRequestError
from kernelserve.protocol import EngineCoreEventType, FinishReason
from tests.helpers.scheduling import Engine, solo_output


def test_trap_01_full_prefix_hit_recomputes_the_last_block() -> None:
    engine = Engine()
    engine.finish_alone("a", list(range(8)))
    engine.finish_alone("b", list(range(8)))
    assert engine.cached_tokens("a") == 0
    assert engine.cached_tokens("b") == 4
    assert engine.received["b"].token_ids == solo_output(list(range(8)), 4)


def test_trap_02_only_full_blocks_are_shared() -> None:
    engine = Engine()
    engine.finish_alone("a", [1, 2, 3, 4, 5, 6], max_tokens=1)
    engine.finish_alone("b", [1, 2, 3, 4, 5, 6, 9, 9, 9])
    assert engine.cached_tokens("b") == 4


def test_trap_03_equal_blocks_after_other_prefixes_do_not_match() -> None:
    engine = Engine()
    engine.finish_alone("a", [1] * 4 + [7] * 8)
    engine.finish_alone("b", [2] * 4 + [7] * 8)
    assert engine.cached_tokens("b") == 0


def test_trap_04_salt_enters_the_first_block_and_the_chain_carries_it() -> None:
    engine = Engine()
    prompt = list(range(12))
    salted = engine.request("x", prompt, cache_salt="one").block_hashes
    plain = engine.request("x", prompt).block_hashes
    assert not set(salted) & set(plain)
    assert salted[1] == hash_block(salted[0], prompt[4:8], ())

    for req_id, salt, cached in (("a", "one", 0), ("b", "two", 0), ("c", None, 0), ("d", "one", 8)):
        engine.finish_alone(req_id, prompt, cache_salt=salt)
        assert engine.cached_tokens(req_id) == cached


def test_trap_05_lora_is_keyed_by_name_in_every_block() -> None:
    def hashes(name: str | None) -> list[bytes]:
        found: list[bytes] = []
        BlockHasher(4, lora_name=name).extend(found, list(range(8)))
        return found

    assert hashes("sql") == hashes("sql")
    assert not set(hashes("sql")) & set(hashes("poet") + hashes(None))
    second = hash_block(hashes("sql")[0], list(range(4, 8)), [("lora", "sql")])
    assert hashes("sql")[1] == second


def test_trap_06_hit_blocks_in_the_free_queue_count_as_needed() -> None:
    engine = Engine(num_blocks=5)
    engine.finish_alone("a", list(range(8)), max_tokens=1)
    engine.submit("b", [50, 51], max_tokens=2)
    engine.step()
    engine.submit("c", list(range(14)), max_tokens=1)
    plan = engine.step()  # c: 4 blocks, of which 2 are hit but free; b holds 1 of 4
    assert "c" not in plan.num_scheduled_tokens
    (refusal,) = engine.scheduler.step_records[-1].refusals
    assert (refusal.request_id, refusal.reason) == ("c", "blocks")
    assert (refusal.needed, refusal.available) == (4, 3)
    engine.run()
    assert engine.cached_tokens("c") == 8


def test_trap_06_hits_are_touched_before_new_blocks_are_taken() -> None:
    engine = Engine(num_blocks=5)
    engine.finish_alone("a", list(range(8)), max_tokens=1)
    engine.finish_alone("b", list(range(20, 28)), max_tokens=1)
    # The blocks of a are the first to be evicted, and all four blocks are needed.
    engine.finish_alone("c", list(range(15)), max_tokens=1)
    assert engine.cached_tokens("c") == 8
    assert engine.received["c"].token_ids == solo_output(list(range(15)), 1)


def test_trap_07_tails_are_evicted_before_heads() -> None:
    engine = Engine(num_blocks=5)
    engine.finish_alone("a", list(range(13)), max_tokens=1)
    engine.finish_alone(
        "b", list(range(20, 28)), max_tokens=1
    )  # takes the partial block, and one more
    engine.finish_alone("c", list(range(13)), max_tokens=1)
    assert engine.cached_tokens("c") == 8


def test_trap_08_requests_of_one_step_share_blocks_that_it_will_compute() -> None:
    engine = Engine()
    engine.submit("a", list(range(12)))
    engine.submit("b", list(range(12)))
    plan = engine.step()
    first, second = plan.scheduled_new_reqs
    assert second.num_computed_tokens == 8
    assert first.block_ids[:2] == second.block_ids[:2]
    assert first.block_ids[2] != second.block_ids[2]
    engine.run()
    assert engine.received["b"].token_ids == engine.received["a"].token_ids


def test_trap_08_blocks_of_a_failed_request_are_not_hit() -> None:
    engine = Engine()
    engine.submit("a", list(range(12)))
    engine.runner.errors = {"a": "NaN logits"}
    engine.run()
    assert engine.received["a"].finish_reason is FinishReason.ERROR
    assert engine.received["a"].stop_reason == "NaN logits"
    engine.finish_alone("b", list(range(12)))
    assert engine.cached_tokens("b") == 0


def test_trap_09_a_live_id_is_refused_and_its_owner_unharmed() -> None:
    engine = Engine()
    engine.submit("a", [1, 2, 3])
    with pytest.raises(InvalidRequestError, match="'a' is in use"):
        engine.scheduler.add_request(engine.request("a", [7, 7]))
    engine.step()
    with pytest.raises(InvalidRequestError, match="'a' is in use"):
        engine.scheduler.add_request(engine.request("a", [7, 7]))
    engine.run()
    assert engine.received["a"].token_ids == solo_output([1, 2, 3], 4)
    engine.finish_alone("a", [7, 7])
    assert engine.received["a"].token_ids == solo_output([7, 7], 4)


def test_trap_10_a_preempted_request_computes_its_output_again_and_emits_nothing_twice() -> None:
    engine = Engine(num_blocks=7, enable_prefix_caching=False)
    prompts = {"a": [1, 2, 3, 4, 5, 6, 7], "b": [8, 9, 10, 11, 12, 13, 14]}
    for req_id, prompt in prompts.items():
        engine.submit(req_id, prompt, max_tokens=12, min_tokens=12)
    b = engine.scheduler.requests["b"]
    plans = engine.run()
    (resumed,) = [new for plan in plans for new in plan.scheduled_new_reqs if new.req_id == "b"][1:]
    assert b.num_preemptions == 1
    assert resumed.num_prompt_tokens == 7
    assert resumed.token_ids == prompts["b"] + solo_output(prompts["b"], len(resumed.token_ids) - 7)
    assert len(resumed.token_ids) > 7
    for req_id, prompt in prompts.items():
        assert engine.received[req_id].token_ids == solo_output(prompt, 12)


def test_trap_11_a_victim_already_scheduled_in_the_step_is_fully_undone() -> None:
    engine = Engine(num_blocks=5, policy="priority")
    low = engine.submit("low", list(range(7)), priority=5, max_tokens=4)
    engine.submit("high", list(range(20, 28)), priority=5, arrival_time=100.0, max_tokens=4)
    engine.step()
    low.priority = 9  # from here on low, first in the list, is the victim
    plan = engine.schedule()
    # low was to fill its second block; high then needed a third one.
    assert plan.num_scheduled_tokens == {"high": 1}
    assert plan.total_num_scheduled_tokens == 1
    assert plan.preempted_req_ids == {"low"}
    assert plan.scheduled_cached_reqs.req_ids == ["high"]
    assert low.num_computed_tokens == 0
    assert low.block_hashes[0] in engine.kv.pool.cached
    assert low.block_hashes[1] not in engine.kv.pool.cached, (
        "a block that is never computed can be hit"
    )
    engine.execute_and_update(plan)
    engine.run()
    assert engine.received["low"].token_ids == solo_output(list(range(7)), 4)


def test_trap_12_nobody_is_admitted_in_a_step_that_preempts() -> None:
    engine = Engine(num_blocks=5)
    engine.submit("a", list(range(8)), max_tokens=8)
    engine.submit("b", list(range(20, 28)), max_tokens=8)
    engine.step()
    engine.submit("c", [40], max_tokens=1)
    plan = engine.step()
    assert plan.preempted_req_ids == {"b"}
    assert list(plan.num_scheduled_tokens) == ["a"]
    (refusal,) = engine.scheduler.step_records[-1].refusals
    assert (refusal.request_id, refusal.reason) == ("b", "preempted_step")
    engine.run()


def test_trap_12_the_requester_may_preempt_itself() -> None:
    engine = Engine(num_blocks=5)
    engine.submit("a", list(range(6)), max_tokens=6)
    b = engine.submit("b", list(range(20, 28)), max_tokens=4)
    engine.step()
    plan = engine.step()
    assert list(plan.num_scheduled_tokens) == ["a"]
    assert b.status is RequestStatus.PREEMPTED
    refusal, _ = engine.scheduler.step_records[-1].refusals
    assert (refusal.request_id, refusal.reason) == ("b", "blocks")
    assert (refusal.needed, refusal.available) == (1, 0)
    engine.run()
    assert engine.received["b"].token_ids == solo_output(list(range(20, 28)), 4)


def test_trap_13_running_requests_skip_and_continue() -> None:
    engine = Engine(max_num_batched_tokens=16)
    engine.submit("a", [1, 2, 3])
    engine.submit("b", list(range(60)))
    first = engine.schedule()
    second = engine.schedule()  # before the first is updated: nothing new to compute for a
    assert first.num_scheduled_tokens == {"a": 3, "b": 13}
    assert second.num_scheduled_tokens == {"b": 16}
    engine.execute_and_update(first)
    engine.execute_and_update(second)
    engine.run()


def test_trap_13_a_refused_waiting_request_holds_up_those_behind_it() -> None:
    engine = Engine(num_blocks=9)
    engine.submit("a", list(range(20)), max_tokens=3)
    engine.step()
    engine.submit("big", list(range(40, 60)))
    engine.submit("small", [1])
    plan = engine.step()
    assert list(plan.num_scheduled_tokens) == ["a"]
    engine.run()


def test_trap_14_a_prompt_is_admitted_only_if_all_of_it_fits() -> None:
    engine = Engine(num_blocks=16, max_num_batched_tokens=8)
    for req_id, start in (("a", 0), ("b", 100), ("c", 200)):
        engine.submit(req_id, list(range(start, start + 36)), max_tokens=4)
    plan = engine.step()
    assert plan.num_scheduled_tokens == {"a": 8}
    engine.step()
    (refusal,) = engine.scheduler.step_records[-1].refusals
    assert refusal.reason == "budget"
    engine.run()
    assert engine.scheduler.stats().num_preemptions == 0


def test_trap_14_what_is_promised_to_a_prompt_in_progress_is_not_given_away() -> None:
    engine = Engine(num_blocks=16, max_num_batched_tokens=20, long_prefill_token_threshold=8)
    engine.submit("a", list(range(36)), max_tokens=4)
    engine.submit("b", list(range(100, 136)), max_tokens=4)
    plan = engine.step()
    assert plan.num_scheduled_tokens == {"a": 8}
    (refusal,) = engine.scheduler.step_records[-1].refusals
    # 15 blocks; a holds 2 and has the promise of 7 more.
    assert (refusal.reason, refusal.needed, refusal.available) == ("blocks", 9, 6)
    engine.run()
    assert engine.scheduler.stats().num_preemptions == 0


def test_trap_15_max_tokens_counts_outputs_and_max_model_len_everything() -> None:
    engine = Engine(max_model_len=20)
    outputs = engine.finish_alone("a", list(range(10)), max_tokens=5)
    assert len(outputs.token_ids) == 5
    outputs = engine.finish_alone("b", list(range(10)), max_tokens=50)
    assert len(outputs.token_ids) == 10
    assert outputs.finish_reason is FinishReason.LENGTH
    outputs = engine.finish_alone("c", list(range(19)), max_tokens=None)
    assert len(outputs.token_ids) == 1
    assert engine.scheduler.why_impossible(engine.request("d", list(range(20)))) is not None


def test_trap_16_finished_ids_reach_the_runner_in_an_empty_step() -> None:
    engine = Engine()
    engine.submit("a", [1, 2, 3], max_tokens=1)
    engine.step()
    scheduler = engine.scheduler
    assert not scheduler.has_unfinished_requests()
    assert scheduler.has_requests()
    num_records = len(scheduler.step_records)
    plan = engine.step()
    assert (plan.total_num_scheduled_tokens, plan.finished_req_ids) == (0, {"a"})
    assert not scheduler.has_requests()
    assert len(scheduler.step_records) == num_records
    assert engine.schedule().finished_req_ids == set()


def test_trap_16_a_reused_id_is_finished_and_new_in_one_plan() -> None:
    engine = Engine()
    engine.submit("a", [1, 2, 3])
    engine.step()
    engine.abort("a")
    engine.submit("a", [4, 5, 6, 7])
    plan = engine.step()
    assert plan.finished_req_ids == {"a"}
    assert [new.req_id for new in plan.scheduled_new_reqs] == ["a"]
    engine.run()
    assert engine.received["a"].token_ids == solo_output([4, 5, 6, 7], 4)


def test_trap_17_the_null_block_is_outside_of_everything() -> None:
    engine = Engine(num_blocks=4)
    assert engine.scheduler.stats().num_total_blocks == 3
    engine.submit("a", list(range(11)), max_tokens=1)
    plan = engine.schedule()
    assert sorted(plan.scheduled_new_reqs[0].block_ids) == [1, 2, 3]
    stats = engine.scheduler.stats()
    assert (stats.num_used_blocks, stats.kv_cache_usage) == (3, 1.0)
    engine.execute_and_update(plan)
    engine.run()
    assert engine.scheduler.stats().kv_cache_usage == 0.0
    assert engine.kv.pool.null_block.ref_cnt == 0


def test_trap_18_a_reset_reports_or_preempts_what_runs() -> None:
    engine = Engine()
    for req_id in ("a", "b"):
        engine.submit(req_id, [*range(9), ord(req_id)], max_tokens=6)
    engine.step()
    engine.step()
    scheduler = engine.scheduler
    assert scheduler.reset_prefix_cache() is False
    assert scheduler.stats().num_running_reqs == 2
    assert scheduler.reset_prefix_cache(reset_running_requests=True) is True
    scheduler.check_integrity()
    stats = scheduler.stats()
    assert (stats.num_used_blocks, stats.num_cached_blocks, stats.num_waiting_reqs) == (0, 0, 2)
    plan = engine.step()
    assert plan.preempted_req_ids == {"a", "b"}
    assert [new.req_id for new in plan.scheduled_new_reqs] == ["a", "b"]
    assert plan.scheduled_new_reqs[0].num_computed_tokens == 0
    engine.run()
    assert engine.received["a"].token_ids == solo_output([*range(9), ord("a")], 6)
    assert scheduler.reset_prefix_cache() is True


def test_trap_20_blocks_beyond_the_known_tokens_are_not_registered() -> None:
    engine = Engine()
    request = engine.submit("a", list(range(7)))
    engine.step()
    assert engine.kv.allocate_slots(request, 5) is not None  # 1 known token and 4 drafts
    assert len(engine.kv.pool.cached) == 2
    engine.scheduler.check_integrity()


def test_trap_54_queue_and_first_output_are_told_once_across_preemptions() -> None:
    engine = Engine(num_blocks=7)
    engine.submit("a", list(range(8)), max_tokens=12)
    engine.submit("b", list(range(20, 28)), max_tokens=12)
    engine.run()
    received = engine.received["b"]
    types = [event.type for event in received.events]
    queued, scheduled, preempted = EngineCoreEventType
    assert types[:2] == [queued, scheduled]
    assert types[2:] == [preempted, scheduled] * (len(types[2:]) // 2)
    assert len(types) > 2
    times = [event.timestamp for event in received.events]
    assert times == sorted(times)
    assert len(received.prefill_stats) == 1


def test_trap_55_hits_after_preemption_are_counted_apart() -> None:
    engine = Engine(num_blocks=9)
    engine.submit("a", list(range(8)), max_tokens=16)
    b = engine.submit("b", list(range(20, 28)), max_tokens=16)
    engine.run()
    assert b.num_preemptions > 0
    stats = engine.scheduler.stats().prefix_cache_stats
    assert (stats.requests, stats.queries, stats.hits) == (2, 16, 0)
    assert stats.preempted_requests == b.num_preemptions
    assert stats.preempted_queries > 8
    assert stats.preempted_hits > 0
    engine.finish_alone("c", list(range(8)))
    assert engine.scheduler.stats().prefix_cache_stats.hits == 4


def test_trap_55_a_refused_request_is_not_looked_up_twice() -> None:
    engine = Engine(num_blocks=9)
    engine.submit("a", list(range(20)), max_tokens=6)
    engine.submit("b", list(range(20)), max_tokens=1, skip_reading_prefix_cache=True)
    engine.submit("c", list(range(20)), max_tokens=1)
    engine.run()
    stats = engine.scheduler.stats().prefix_cache_stats
    assert (stats.requests, stats.queries, stats.hits) == (2, 40, 16)
    assert engine.cached_tokens("b") == 0


def test_an_empty_runner_output_ends_the_request_instead_of_stalling_it() -> None:
    engine = Engine()
    engine.submit("a", [1, 2])
    plan = engine.schedule()
    outputs = engine.scheduler.update_from_output(plan, ModelRunnerOutput(["a"], [[]]), 0.0)
    assert outputs[0][0].finish_reason is FinishReason.ERROR
    assert not engine.scheduler.has_unfinished_requests()
