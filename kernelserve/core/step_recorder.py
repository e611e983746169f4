"""Remembers what the last steps decided, for dashboards and traces."""

from __future__ import annotations

from collections import deque

from kernelserve.core.scheduler_output import SchedulerOutput
from kernelserve.core.scheduler_state import SchedulerState
from kernelserve.core.step_plan import StepPlan
from kernelserve.protocol import StepRecord

__all__ = ["StepRecorder"]


class StepRecorder:
    """Keeps a record of each step that scheduled or preempted something.

    Request and block counts are those of the step while it executes: after its schedule, before its
    update.
    """

    def __init__(self, num_step_records: int) -> None:
        self.records: deque[StepRecord] = deque(maxlen=num_step_records)
        self.num_steps = 0
        self._current: StepRecord | None = None

    def record_schedule(
        self, plan: StepPlan, output: SchedulerOutput, state: SchedulerState
    ) -> None:
        """Open the record of a step, or none if nothing happened in it."""
        self._current = None
        if not output.total_num_scheduled_tokens and not output.preempted_req_ids:
            return
        pool = state.kv_cache_manager.pool
        self._current = StepRecord(
            step=self.num_steps,
            timestamp=state.now,
            token_budget=plan.token_budget,
            num_scheduled_tokens=output.num_scheduled_tokens,
            num_prefill_tokens=output.total_num_scheduled_tokens - plan.num_decode_tokens,
            num_decode_tokens=plan.num_decode_tokens,
            new_req_ids=plan.new_req_ids,
            resumed_req_ids=plan.resumed_req_ids,
            preempted_req_ids=plan.preempted_req_ids,
            finished_req_ids=[],
            refusals=plan.refusals,
            num_running_reqs=len(state.running),
            num_waiting_reqs=len(state.waiting),
            num_used_blocks=pool.num_used_blocks,
            num_cached_blocks=pool.num_cached_blocks,
            num_free_blocks=pool.num_free_blocks,
        )
        self.num_steps += 1
        self.records.append(self._current)

    def record_finished(self, request_id: str) -> None:
        """Add a request that the update of the open step has ended."""
        if self._current is not None:
            self._current.finished_req_ids.append(request_id)
