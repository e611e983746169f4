from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelserve.core.request import Request
from kernelserve.core.request_queue import (
    FCFSRequestQueue,
    PriorityRequestQueue,
    create_request_queue,
    priority_key,
)
from kernelserve.sampling_params import SamplingParams

PARAMS = SamplingParams()


def make(request_id: str, priority: int = 0, arrival_time: float = 0.0) -> Request:
    return Request(
        request_id, [1], PARAMS, block_size=4, priority=priority, arrival_time=arrival_time
    )


def ids(queue: Any) -> list[str]:
    return [request.request_id for request in queue]


def test_fcfs_serves_in_order_and_preempted_ones_first() -> None:
    queue = create_request_queue("fcfs")
    a, b, c = make("a"), make("b"), make("c", priority=-5)
    for request in (a, b, c):
        queue.add(request)
    assert queue.peek() is a
    queue.remove(a)
    queue.put_back(a)
    assert ids(queue) == ["a", "b", "c"]
    queue.remove(b)
    assert ids(queue) == ["a", "c"]
    assert len(queue) == 2


def test_priority_serves_by_priority_arrival_and_id() -> None:
    queue = create_request_queue("priority")
    for request in (make("z", 1, 1.0), make("y", 0, 9.0), make("x", 1, 0.5), make("w", 1, 0.5)):
        queue.add(request)
    assert ids(queue) == ["y", "w", "x", "z"]
    head = queue.peek()
    assert head is not None
    queue.remove(head)
    queue.put_back(head)
    assert ids(queue) == ["y", "w", "x", "z"], "a preempted request lost its place"


@pytest.mark.parametrize("make_queue", [FCFSRequestQueue, PriorityRequestQueue])
def test_an_id_can_be_removed_and_queued_again(make_queue: Callable[[], Any]) -> None:
    queue = make_queue()
    old, new = make("a", 0), make("a", 5)
    queue.add(make("b", 3))
    queue.add(old)
    queue.remove(old)
    queue.add(new)
    assert len(queue) == 2
    assert ids(queue) == ["b", "a"]
    assert [queue.peek().request_id, len(queue)] == ["b", 2]
    queue.remove(queue.peek())
    assert queue.peek() is new
    queue.remove(new)
    assert queue.peek() is None


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60), st.randoms())
def test_priority_queue_equals_a_sorted_list(moves: list[tuple[int, bool]], rng: Any) -> None:
    queue, model = PriorityRequestQueue(), []
    for i, (priority, take_out) in enumerate(moves):
        request = make(f"r{i}", priority, float(i % 4))
        queue.add(request)
        model.append(request)
        if take_out:
            victim = rng.choice(model)
            queue.remove(victim)
            model.remove(victim)
        model.sort(key=priority_key)
        assert queue.peek() is (model[0] if model else None)
        assert len(queue) == len(model)
    assert list(queue) == model


def test_removed_entries_do_not_pile_up() -> None:
    queue = PriorityRequestQueue()
    queue.add(make("first", -1))
    for i in range(1000):
        request = make(f"r{i}")
        queue.add(request)
        queue.remove(request)
    assert len(queue._heap) < 20
