"""Remembers what the last steps decided, for dashboards and traces."""

from __future__ import annotations

from collections import deque

from kernelserve.core.request import Request
from kernelserve.core.scheduler_output import SchedulerOutput
from kernelserve.core.scheduler_state import SchedulerState
from kernelserve.core.step_plan import StepPlan
from kernelserve.protocol import EncoderInput, QueuedRequest, StepRecord

__all__ = ["StepRecorder"]


class StepRecorder:
    """Keeps a record of each step that scheduled or preempted something.

    Request and block counts are those of the step while it executes: after its schedule, before its
    update. What happened to the queue between two records waits for the later one; a request that
    came and went in between leaves no trace, so that what waits here is bounded by the live requests.
    """

    def __init__(self, num_step_records: int) -> None:
        self.records: deque[StepRecord] = deque(maxlen=num_step_records)
        self.num_steps = 0
        self.last_record: StepRecord | None = None
        """Of the last plan; None if nothing happened in it."""
        self._queued: dict[str, QueuedRequest] = {}
        self._aborted_req_ids: list[str] = []

    def record_queued(self, request: Request) -> None:
        """Note a request that has joined the queue."""
        self._queued[request.request_id] = QueuedRequest(
            request.request_id, request.queued_at, request.num_prompt_tokens
        )

    def record_aborted(self, request_id: str) -> None:
        """Note a request that was ended from outside."""
        if self._queued.pop(request_id, None) is None:
            self._aborted_req_ids.append(request_id)

    def record_schedule(
        self, plan: StepPlan, output: SchedulerOutput, state: SchedulerState
    ) -> None:
        """Open the record of a step, or none if nothing happened in it."""
        self.last_record = None
        if not output.total_num_scheduled_tokens and not output.preempted_req_ids:
            return
        pool = state.kv_cache_manager.pool
        self.last_record = StepRecord(
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
            queued=list(self._queued.values()),
            num_cached_tokens={
                new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs
            },
            aborted_req_ids=self._aborted_req_ids,
            encoder_inputs=[
                EncoderInput(req_id, feature.mm_hash, feature.position.num_embeds)
                for req_id, feature in plan.encoder_inputs.values()
            ],
            encoder_hits=plan.encoder_hits,
        )
        self._queued, self._aborted_req_ids = {}, []
        self.num_steps += 1
        self.records.append(self.last_record)

    def record_finished(self, request_id: str) -> None:
        """Add a request that the update of the open step has ended."""
        if self.last_record is not None:
            self.last_record.finished_req_ids.append(request_id)
