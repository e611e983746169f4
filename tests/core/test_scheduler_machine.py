"""Random arrivals, aborts, preemptions and resets never break an invariant, an answer or the progress."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kernelserve.core.scheduler_output import SchedulerOutput
from kernelserve.protocol import FinishReason
from tests.helpers.scheduling import VOCAB_SIZE, Engine, solo_output

SETTINGS = settings(
    max_examples=45,
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class SchedulerMachine(RuleBasedStateMachine):
    """Drives one scheduler over a tiny pool; at the end everything that was not aborted must have finished."""

    options: ClassVar[dict[str, Any]] = {}

    @initialize(
        num_blocks=st.integers(6, 24),
        block_size=st.sampled_from([1, 2, 3, 4]),
        max_num_seqs=st.integers(1, 5),
        more_tokens=st.integers(0, 12),
        threshold=st.sampled_from([0, 0, 1, 3]),
    )
    def start(
        self, num_blocks: int, block_size: int, max_num_seqs: int, more_tokens: int, threshold: int
    ) -> None:
        self.engine = Engine(
            num_blocks=num_blocks,
            block_size=block_size,
            max_model_len=60,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_seqs + more_tokens,
            long_prefill_token_threshold=threshold,
            **self.options,
        )
        self.in_flight: SchedulerOutput | None = None
        self.asked: dict[str, tuple[list[int], int, int]] = {}
        self.aborted: set[str] = set()
        self.failed: set[str] = set()

    @rule(
        prefix=st.sampled_from([0, 3, 8, 12]),
        length=st.integers(1, 16),
        max_tokens=st.integers(1, 20),
        stop_id=st.integers(0, VOCAB_SIZE - 1),
        priority=st.integers(0, 3),
        salt=st.sampled_from([None, None, "a"]),
        reads=st.booleans(),
    )
    def submit(
        self,
        prefix: int,
        length: int,
        max_tokens: int,
        stop_id: int,
        priority: int,
        salt: str | None,
        reads: bool,
    ) -> None:
        prompt = list(range(prefix)) + [length % 3] * length
        req_id = f"r{len(self.asked)}"
        request = self.engine.request(req_id, prompt)
        if self.engine.scheduler.why_impossible(request) is not None:
            assert len(prompt) >= self.engine.scheduler.max_model_len
            return
        self.asked[req_id] = (prompt, max_tokens, stop_id)
        self.engine.submit(
            req_id,
            prompt,
            max_tokens=max_tokens,
            stop_token_ids=[stop_id],
            priority=priority,
            cache_salt=salt,
            skip_reading_prefix_cache=not reads,
        )

    @precondition(lambda self: self.in_flight is None)
    @rule()
    def schedule(self) -> None:
        self.in_flight = self.engine.schedule()

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def update(self) -> None:
        assert self.in_flight is not None
        self.engine.execute_and_update(self.in_flight)
        self.in_flight = None

    @precondition(lambda self: self.in_flight is None)
    @rule(num_steps=st.integers(1, 8))
    def steps(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.engine.step()

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        req_id = data.draw(st.sampled_from(sorted(self.asked)))
        alive = req_id in self.engine.scheduler.requests
        assert self.engine.abort(req_id, "unknown", req_id) == ([(req_id, 0)] if alive else [])
        if alive:
            self.aborted.add(req_id)

    @precondition(lambda self: self.in_flight is not None and self.in_flight.num_scheduled_tokens)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        assert self.in_flight is not None
        req_id = data.draw(st.sampled_from(sorted(self.in_flight.num_scheduled_tokens)))
        self.engine.runner.errors = {req_id: "NaN logits"}
        if req_id in self.engine.scheduler.requests:
            self.failed.add(req_id)

    @precondition(lambda self: self.in_flight is None)
    @rule(preempt=st.booleans())
    def reset_prefix_cache(self, preempt: bool) -> None:
        scheduler = self.engine.scheduler
        done = scheduler.reset_prefix_cache(reset_running_requests=preempt)
        assert done == (scheduler.stats().num_running_reqs == 0)
        scheduler.check_integrity()

    @rule(
        max_num_seqs=st.integers(1, 4),
        more_tokens=st.integers(0, 8),
        policy=st.sampled_from([None, None, "fcfs", "priority"]),
    )
    def configure(self, max_num_seqs: int, more_tokens: int, policy: Any) -> None:
        self.engine.scheduler.configure(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_seqs + more_tokens,
            policy=policy,
        )

    @invariant()
    def the_map_agrees_with_the_pool(self) -> None:
        if not hasattr(self, "engine"):
            return
        stats = self.engine.scheduler.stats()
        block_map = self.engine.scheduler.kv_cache_map()
        states = Counter(block_map.states)
        assert block_map.num_blocks == sum(states.values()) == stats.num_total_blocks
        assert states[0] == stats.num_free_blocks
        assert states[1] == stats.num_cached_blocks
        assert states[2] + states[3] == stats.num_used_blocks
        assert set(block_map.req_ids) == set(self.engine.kv.tables)
        owners = Counter(block_id for table in block_map.block_tables for block_id in table)
        for index, state in enumerate(block_map.states):
            assert min(owners[index + 1], 2) == max(state - 1, 0)

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        if self.in_flight is not None:
            self.update()
        self.engine.run()
        assert not self.engine.scheduler.has_requests()
        self._check_records()
        for req_id, asked in self.asked.items():
            self._check_answer(req_id, *asked)

    def _check_records(self) -> None:
        """Each request that was ever scheduled is queued once; hits and ends are those of the stats and the aborts."""
        records = self.engine.scheduler.step_records
        queued = Counter(entry.request_id for record in records for entry in record.queued)
        admitted = {req_id for record in records for req_id in record.new_req_ids}
        assert set(queued.values()) <= {1}
        assert admitted <= set(queued) <= set(self.asked)
        for record in records:
            assert all(entry.timestamp <= record.timestamp for entry in record.queued)
            assert all(
                entry.num_prompt_tokens == len(self.asked[entry.request_id][0])
                for entry in record.queued
            )
            assert set(record.num_cached_tokens) == {*record.new_req_ids, *record.resumed_req_ids}
        cache = self.engine.scheduler.stats().prefix_cache_stats
        cached = sum(sum(record.num_cached_tokens.values()) for record in records)
        assert cached == cache.hits + cache.preempted_hits
        aborted = Counter(req_id for record in records for req_id in record.aborted_req_ids)
        assert set(aborted.values()) <= {1}
        assert set(aborted) <= self.aborted & set(queued)
        ended = {req_id for record in records for req_id in record.finished_req_ids}
        assert not ended & self.aborted
        assert set(queued) - ended <= self.aborted

    def _check_answer(self, req_id: str, prompt: list[int], max_tokens: int, stop_id: int) -> None:
        received = self.engine.received[req_id]
        room = self.engine.scheduler.max_model_len - len(prompt)
        expected = solo_output(prompt, min(max_tokens, room))
        reason = FinishReason.LENGTH
        if stop_id in expected:
            expected = expected[: expected.index(stop_id) + 1]
            reason = FinishReason.STOP
        if req_id in self.aborted or received.finish_reason is FinishReason.ERROR:
            assert received.token_ids == expected[: len(received.token_ids)]
            assert received.finish_reason in (None, FinishReason.ERROR)
            assert req_id in self.aborted | self.failed
        else:
            assert (received.token_ids, received.finish_reason) == (expected, reason)


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("enable_prefix_caching", [True, False])
def test_scheduler_survives_anything(policy: str, enable_prefix_caching: bool) -> None:
    options = {"policy": policy, "enable_prefix_caching": enable_prefix_caching}
    machine = type("Machine", (SchedulerMachine,), {"options": options})
    run_state_machine_as_test(machine, settings=SETTINGS)
