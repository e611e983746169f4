from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernelserve.core import request_queue
from kernelserve.core.request import Request
from kernelserve.errors import InvalidConfigError
from tests.helpers.scheduling import Engine, solo_output


@pytest.mark.parametrize("budget", [1, 7, 16, 64])
@pytest.mark.parametrize("threshold", [0, 1, 5])
def test_chunk_size_does_not_change_the_answer(budget: int, threshold: int) -> None:
    engine = Engine(
        max_num_seqs=min(4, budget),
        max_num_batched_tokens=budget,
        long_prefill_token_threshold=threshold,
    )
    prompts = {f"r{i}": list(range(i, i + 5 * i + 1)) for i in range(6)}
    for req_id, prompt in prompts.items():
        engine.submit(req_id, prompt, max_tokens=6)
    plans = engine.run()
    assert max(plan.total_num_scheduled_tokens for plan in plans) <= budget
    if threshold:
        assert max(n for plan in plans for n in plan.num_scheduled_tokens.values()) <= threshold
    for req_id, prompt in prompts.items():
        assert engine.received[req_id].token_ids == solo_output(prompt, 6)


def test_t42_running_requests_get_their_token_beside_a_long_prompt() -> None:
    engine = Engine(num_blocks=400, max_model_len=1600, max_num_batched_tokens=16)
    for i in range(4):
        engine.submit(f"r{i}", [i], max_tokens=40)
    engine.step()
    engine.submit("long", [7] * 400, max_tokens=1)
    for _ in range(30):
        plan = engine.step()
        assert plan.num_scheduled_tokens == {"r0": 1, "r1": 1, "r2": 1, "r3": 1, "long": 12}
    engine.run()


def test_seats_are_kept_to() -> None:
    engine = Engine(max_num_seqs=3)
    for i in range(10):
        engine.submit(f"r{i}", [i], max_tokens=1 + i % 3)
    plans = engine.run()
    assert max(len(plan.num_scheduled_tokens) for plan in plans) == 3


def test_stats_tell_the_truth_in_flight_and_at_rest() -> None:
    engine = Engine(max_num_seqs=1, num_blocks=11)
    engine.submit("a", list(range(8)), max_tokens=2)
    engine.submit("b", [1])
    plan = engine.schedule()
    stats = engine.scheduler.stats()
    assert (stats.num_running_reqs, stats.num_waiting_reqs) == (1, 1)
    assert (stats.num_total_blocks, stats.num_used_blocks, stats.num_free_blocks) == (10, 2, 8)
    assert stats.kv_cache_usage == 0.2
    engine.execute_and_update(plan)
    engine.abort("a", "b")
    stats = engine.scheduler.stats()
    assert (stats.num_running_reqs, stats.num_waiting_reqs) == (0, 0)
    assert (stats.num_used_blocks, stats.num_cached_blocks, stats.num_free_blocks) == (0, 2, 8)
    assert (stats.kv_cache_usage, stats.num_steps) == (0.0, 1)


def test_stats_are_a_copy() -> None:
    engine = Engine()
    before = engine.scheduler.stats()
    engine.finish_alone("a", [1, 2, 3, 4, 5])
    assert before.prefix_cache_stats.queries == 0
    assert engine.scheduler.stats().prefix_cache_stats.queries == 5


def test_without_a_prefix_cache_nothing_is_looked_up_or_kept() -> None:
    engine = Engine(enable_prefix_caching=False)
    for req_id in ("a", "b"):
        engine.finish_alone(req_id, list(range(12)))
        assert engine.cached_tokens(req_id) == 0
    stats = engine.scheduler.stats()
    assert stats.num_cached_blocks == 0
    assert stats.prefix_cache_stats.requests == 0


def test_limits_change_from_the_next_step_on() -> None:
    engine = Engine(max_num_seqs=4)
    for i in range(4):
        engine.submit(f"r{i}", [i], max_tokens=8)
    engine.step()
    engine.scheduler.configure(max_num_seqs=2, max_num_batched_tokens=2)
    assert engine.step().total_num_scheduled_tokens == 2
    engine.scheduler.configure(max_num_batched_tokens=64, long_prefill_token_threshold=3)
    engine.scheduler.configure(max_num_seqs=8)
    engine.submit("long", list(range(10)))
    assert engine.step().num_scheduled_tokens["long"] == 3
    engine.run()


@pytest.mark.parametrize(
    "change",
    [
        {"max_num_seqs": 0},
        {"max_num_batched_tokens": -1},
        {"long_prefill_token_threshold": -1},
        {"max_num_seqs": 65},
        {"max_num_batched_tokens": 7},
        {"max_num_seqs": 2.5},
    ],
)
def test_a_bad_limit_is_refused_and_nothing_changes(change: dict[str, int]) -> None:
    engine = Engine(max_num_seqs=8, max_num_batched_tokens=64)
    with pytest.raises(InvalidConfigError, match=f"{next(iter(change))}="):
        engine.scheduler.configure(policy="priority", **change)
    engine.submit("a", [1], priority=1)
    engine.submit("b", [2])
    assert list(engine.step().num_scheduled_tokens) == ["a", "b"]
    engine.run()


def test_a_bad_policy_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="policy='lifo'"):
        Engine().scheduler.configure(policy="lifo")  # type: ignore[arg-type]


def test_the_policy_can_change_while_requests_wait() -> None:
    engine = Engine(max_num_seqs=1)
    for req_id, priority in (("run", 0), ("a", 3), ("b", 1), ("c", 2)):
        engine.submit(req_id, [1], priority=priority, max_tokens=1)
    engine.step()
    engine.scheduler.configure(policy="priority")
    engine.scheduler.check_integrity()
    assert list(engine.step().num_scheduled_tokens) == ["b"]
    engine.scheduler.configure(policy="fcfs")
    assert list(engine.step().num_scheduled_tokens) == ["a"]
    engine.run()


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_a_step_does_not_walk_the_waiting_requests(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(max_num_seqs=2, policy=policy)
    peeks = 0

    def refuse(_: object) -> Iterator[Request]:
        raise AssertionError("the waiting requests are walked")

    for queue_class in (request_queue.FCFSRequestQueue, request_queue.PriorityRequestQueue):
        original = queue_class.peek

        def count(self: object, original: object = original) -> Request | None:
            nonlocal peeks
            peeks += 1
            return original(self)  # type: ignore[operator, no-any-return]

        monkeypatch.setattr(queue_class, "__iter__", refuse)
        monkeypatch.setattr(queue_class, "peek", count)
    for i in range(500):
        engine.scheduler.add_request(engine.request(f"r{i}", [1], max_tokens=5))
    engine.scheduler.schedule(1.0)
    assert peeks == 3
    engine.scheduler.schedule(2.0)
    assert peeks == 4
