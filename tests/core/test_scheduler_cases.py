"""The cases of shared/reference/user-needs.md E2, E5 and E6 that concern the scheduler, by number."""

from __future__ import annotations

import random

import pytest

from kernelserve.core.request import RequestStatus
from kernelserve.protocol import FinishReason
from tests.helpers.scheduling import Engine, solo_output


def test_t14_what_can_never_fit_is_refused_with_numbers_and_the_rest_runs() -> None:
    engine = Engine(num_blocks=51, block_size=16, max_model_len=4096, max_num_batched_tokens=256)
    for i in range(5):
        request = engine.request(f"big{i}", [i] * 1000)
        reason = engine.scheduler.why_impossible(request)
        assert reason is not None
        assert "1000 tokens" in reason
        assert "63 KV-cache blocks" in reason
        assert "has 50" in reason
    received = engine.finish_alone("short", [1, 2, 3], max_tokens=4)
    assert received.finish_reason is FinishReason.LENGTH


def test_t14_max_tokens_beyond_the_pool_end_with_length() -> None:
    engine = Engine(num_blocks=6, max_model_len=4096)
    assert engine.scheduler.max_model_len == 20
    received = engine.finish_alone("a", list(range(12)), max_tokens=1000)
    assert received.token_ids == solo_output(list(range(12)), 8)
    assert received.finish_reason is FinishReason.LENGTH
    assert engine.scheduler.stats().num_preemptions == 0
    assert engine.scheduler.why_impossible(engine.request("b", list(range(19)))) is None
    assert engine.scheduler.why_impossible(engine.request("c", list(range(20)))) is not None


def test_t14_a_prompt_over_max_model_len_is_refused_with_numbers() -> None:
    engine = Engine(max_model_len=20)
    reason = engine.scheduler.why_impossible(engine.request("a", list(range(20))))
    assert reason is not None
    assert "20 tokens" in reason
    assert "max_model_len=20" in reason
    assert engine.scheduler.why_impossible(engine.request("b", [])) == "the prompt is empty"


@pytest.mark.parametrize(("num_prompt", "num_cached"), [(64, 48), (65, 64), (63, 48)])
def test_t32_a_whole_prompt_in_the_cache_leaves_a_token_to_compute(
    num_prompt: int, num_cached: int
) -> None:
    engine = Engine(block_size=16)
    prompt = [token % 50 for token in range(num_prompt)]
    first = engine.finish_alone("a", prompt, max_tokens=1)
    second = engine.finish_alone("b", prompt, max_tokens=1)
    assert second.token_ids == first.token_ids == solo_output(prompt, 1)
    assert engine.cached_tokens("b") == num_cached


def test_t32_with_a_block_size_of_one_all_but_the_last_token_is_hit() -> None:
    engine = Engine(block_size=1)
    engine.finish_alone("a", list(range(30)), max_tokens=1)
    engine.finish_alone("b", list(range(30)), max_tokens=1)
    assert engine.cached_tokens("b") == 29


def test_t33_a_preempted_request_hits_its_own_old_blocks() -> None:
    engine = Engine(num_blocks=10, max_num_batched_tokens=16)
    prompts = {"a": list(range(12)), "b": list(range(30, 42))}
    for req_id, prompt in prompts.items():
        engine.submit(req_id, prompt, max_tokens=20)
    b = engine.scheduler.requests["b"]
    plans = engine.run()
    resumed = [new for plan in plans for new in plan.scheduled_new_reqs if new.req_id == "b"][1:]
    assert b.num_preemptions == len(resumed) > 0
    assert any(new.num_computed_tokens > 0 for new in resumed)
    for req_id, prompt in prompts.items():
        assert engine.received[req_id].token_ids == solo_output(prompt, 20)


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("caching", [True, False])
def test_t35_repeated_preemption_neither_loses_nor_repeats_tokens(
    policy: str, caching: bool
) -> None:
    engine = Engine(num_blocks=11, block_size=4, policy=policy, enable_prefix_caching=caching)
    prompts = {f"r{i}": [i, i + 1, i + 2] for i in range(6)}
    requests = [
        engine.submit(req_id, prompt, max_tokens=30, priority=int(req_id[1]) % 2)
        for req_id, prompt in prompts.items()
    ]
    engine.run()
    assert sum(request.num_preemptions for request in requests) >= 6
    for req_id, prompt in prompts.items():
        assert engine.received[req_id].token_ids == solo_output(prompt, 30)


def test_t41_order_is_priority_then_arrival() -> None:
    engine = Engine(max_num_seqs=1, policy="priority")
    rng = random.Random(41)
    expected = []
    for i in range(12):
        priority, arrival = rng.randrange(3), float(rng.randrange(4))
        expected.append((priority, arrival, f"r{i:02}"))
        engine.submit(f"r{i:02}", [i], priority=priority, arrival_time=arrival, max_tokens=2)
    plans = engine.run()
    order = [new.req_id for plan in plans for new in plan.scheduled_new_reqs]
    assert order == [req_id for _, _, req_id in sorted(expected)]


def test_t41_a_strictly_higher_one_gets_a_seat() -> None:
    engine = Engine(max_num_seqs=2, policy="priority")
    engine.submit("a", [1], priority=3, max_tokens=10)
    engine.submit("b", [2], priority=4, max_tokens=10)
    engine.step()
    engine.submit("equal", [3], priority=4, max_tokens=1)
    assert engine.step().preempted_req_ids == set()
    engine.submit("urgent", [4], priority=1, max_tokens=1)
    plan = engine.step()
    assert plan.preempted_req_ids == {"b"}
    assert list(plan.num_scheduled_tokens) == ["a"]
    plan = engine.step()
    assert set(plan.num_scheduled_tokens) == {"a", "urgent"}
    plan = engine.step()
    assert set(plan.num_scheduled_tokens) == {"a", "b"}, "b lost its place to a later equal"
    engine.run()
    assert engine.received["b"].token_ids == solo_output([2], 10)


def test_t41_a_strictly_higher_one_gets_blocks() -> None:
    engine = Engine(num_blocks=9, policy="priority")
    engine.submit("a", list(range(12)), priority=3, max_tokens=6)
    engine.submit("b", list(range(20, 32)), priority=4, max_tokens=6)
    engine.step()
    engine.submit("urgent", list(range(40, 56)), priority=1, max_tokens=1)
    engine.step()
    assert "urgent" in engine.step().num_scheduled_tokens
    engine.run()
    assert engine.received["b"].token_ids == solo_output(list(range(20, 32)), 6)


def test_t41_nobody_is_displaced_in_vain() -> None:
    engine = Engine(num_blocks=9, policy="priority")
    engine.submit("high", list(range(20)), priority=0, max_tokens=6)
    engine.submit("low", [1], priority=9, max_tokens=6)
    engine.step()
    engine.submit("urgent", list(range(40, 56)), priority=1, max_tokens=1)  # 4 blocks; 2 are left
    assert engine.step().preempted_req_ids == set()
    engine.run()


def test_t41_nobody_is_displaced_whose_blocks_a_newcomer_counts_on() -> None:
    engine = Engine(policy="priority", max_num_seqs=2, long_prefill_token_threshold=8)
    engine.submit("low", list(range(40)), priority=9)
    engine.step()
    engine.submit("shares", list(range(17)), priority=1)
    engine.submit("urgent", [7], priority=1)
    plan = engine.schedule()
    (new,) = plan.scheduled_new_reqs
    assert (new.req_id, new.num_computed_tokens) == ("shares", 16)  # 8 of them computed just now
    assert plan.preempted_req_ids == set()
    engine.execute_and_update(plan)
    assert engine.step().preempted_req_ids == {"low"}
    engine.run()
    assert engine.received["shares"].token_ids == solo_output(list(range(17)), 4)


def test_t41_tiny_pool_and_random_priorities_all_finish() -> None:
    rng = random.Random(7)
    engine = Engine(num_blocks=8, policy="priority", max_num_seqs=4, max_num_batched_tokens=12)
    prompts = {}
    for i in range(30):
        prompts[f"r{i}"] = [rng.randrange(5) for _ in range(rng.randrange(1, 14))]
        engine.submit(f"r{i}", prompts[f"r{i}"], max_tokens=12, priority=rng.randrange(3))
        engine.step()
    engine.run()
    for req_id, prompt in prompts.items():
        assert engine.received[req_id].token_ids == solo_output(prompt, 12)


@pytest.mark.parametrize("moment", ["queued", "scheduled", "prefilling", "decoding", "preempted"])
def test_t46_abort_at_any_point_is_clean(moment: str) -> None:
    engine = Engine(num_blocks=12, max_num_batched_tokens=8)
    engine.submit("other", [1, 2, 3], max_tokens=12)
    engine.submit("a", list(range(20)), max_tokens=6)
    plan = None
    if moment == "scheduled":
        plan = engine.schedule()
    elif moment != "queued":
        for _ in range({"prefilling": 1, "decoding": 5, "preempted": 5}[moment]):
            engine.step()
    if moment == "preempted":
        engine.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert engine.abort("a") == [("a", 0)]
    assert engine.abort("a", "a", "never seen") == []
    if plan is not None:
        engine.execute_and_update(plan)
    engine.run()
    assert engine.received["a"].finish_reason is None, "an abort from outside emits no output"
    assert engine.received["other"].token_ids == solo_output([1, 2, 3], 12)
    assert engine.abort("other") == []


def test_t46_abort_of_a_finished_request_in_its_last_step() -> None:
    engine = Engine()
    engine.submit("a", [1, 2, 3], max_tokens=1)
    plan = engine.schedule()
    assert engine.abort("a") == [("a", 0)]
    engine.execute_and_update(plan)
    assert engine.received["a"].token_ids == []
    engine.run()


def test_t46_an_aborted_id_that_is_queued_again_does_not_get_the_tokens_in_flight() -> None:
    engine = Engine()
    engine.submit("a", [1, 2, 3])
    plan = engine.schedule()
    engine.abort("a")
    engine.submit("a", [9, 8])
    engine.execute_and_update(plan)
    assert engine.received["a"].token_ids == []
    engine.run()
    assert engine.received["a"].token_ids == solo_output([9, 8], 4)


def test_t46_many_are_ended_at_once_for_the_right_clients() -> None:
    engine = Engine(max_num_seqs=3)
    for i in range(6):
        engine.submit(f"r{i}", [i], client_index=i % 2)
    engine.step()
    ended = engine.scheduler.finish_requests(["r5", "r0", "r3", "r0"], RequestStatus.FINISHED_ERROR)
    assert ended == [("r5", 1), ("r0", 0), ("r3", 1)]
    engine.scheduler.check_integrity()
    engine.run()


def test_a_prompt_whose_every_token_needs_logits_goes_in_chunks_that_fit_in_memory() -> None:
    engine = Engine(num_blocks=400, max_num_batched_tokens=1024, max_model_len=1500)
    prompt = list(range(600))
    engine.submit("plain", prompt, max_tokens=1)
    assert engine.step().num_scheduled_tokens == {"plain": 600}
    engine.submit("logprobs", prompt, max_tokens=1, prompt_logprobs=1)
    plans = engine.run()
    assert [
        plan.num_scheduled_tokens["logprobs"] for plan in plans if plan.num_scheduled_tokens
    ] == [
        256,
        256,
        88,
    ]
