"""The scheduler and the executor joined: the engine without processes, sockets and threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from kernelserve.core.request import Request, RequestStatus
from kernelserve.core.scheduler import Scheduler
from kernelserve.core.scheduler_output import ModelRunnerOutput, SchedulerOutput
from kernelserve.executor.executor import Executor
from kernelserve.protocol import EngineCoreOutput, FinishReason, StepRecord

__all__ = ["EngineCore", "StepOutputs"]

StepOutputs = dict[int, list[EngineCoreOutput]]
"""Client index -> what a step brought to its requests."""


class EngineCore:
    """One step is three calls: schedule, execute, update. Time comes from `clock`, so tests own it.

    `eager_aborts` is filled by another thread while a step runs; its ids are aborted between execute
    and update, so that the step's tokens for them are dropped. Whoever fills it also calls `abort`
    in order. An exception out of `step` means that the engine cannot go on.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        *,
        clock: Callable[[], float],
        eager_aborts: deque[list[str]] | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.executor = executor
        self.clock = clock
        self.num_steps = 0
        self.last_record: StepRecord | None = None
        """Of the last step, None if that had neither tokens nor preemptions."""
        self._eager_aborts = deque[list[str]]() if eager_aborts is None else eager_aborts

    def add_request(self, request: Request) -> EngineCoreOutput | None:
        """Queue a request. Returns its last output if it can never run; no other is affected."""
        reason = self.scheduler.why_impossible(request)
        if request.request_id in self.scheduler.requests:
            reason = f"a request with the id {request.request_id!r} is already running"
        if reason is None:
            self.scheduler.add_request(request)
            return None
        return EngineCoreOutput(
            request.request_id, [], finish_reason=FinishReason.ERROR, stop_reason=reason
        )

    def abort(self, request_ids: Iterable[str]) -> list[tuple[str, int]]:
        """End requests without an output. Returns (id, client) of those that still ran."""
        return self.scheduler.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED)

    def abort_client(self, client_index: int) -> None:
        """End all requests of a client that is gone."""
        requests = self.scheduler.requests.values()
        self.abort([r.request_id for r in requests if r.client_index == client_index])

    def abort_all(self) -> StepOutputs:
        """End all requests. Returns their last outputs."""
        outputs: StepOutputs = {}
        for request_id, client in self.abort(list(self.scheduler.requests)):
            output = EngineCoreOutput(request_id, [], finish_reason=FinishReason.ABORT)
            outputs.setdefault(client, []).append(output)
        return outputs

    def discard_eager_aborts(self) -> None:
        """Forget aborts that arrived while nothing ran; their ordered copies do the work."""
        self._eager_aborts.clear()

    def step(self) -> StepOutputs:
        """Give every scheduled request its tokens. Returns what is new, by client."""
        began = self.clock()
        plan = self.scheduler.schedule(began)
        scheduled = self.clock()
        output, executed = self._execute(plan)
        sampled = self.clock()
        outputs = self.scheduler.update_from_output(plan, output, sampled)
        self._record_times(began, scheduled, executed, sampled)
        if self.last_record is not None:
            self.last_record.encode_time = output.encode_time
        return outputs

    def _execute(self, plan: SchedulerOutput) -> tuple[ModelRunnerOutput, float]:
        self.executor.execute_model(plan)
        executed = self.clock()
        output = self.executor.sample_tokens()
        while self._eager_aborts:
            self.abort(self._eager_aborts.popleft())
        return output, executed

    def _record_times(
        self, began: float, scheduled: float, executed: float, sampled: float
    ) -> None:
        self.num_steps += 1
        record = self.last_record = self.scheduler.last_record
        if record is None:
            return
        record.schedule_time = scheduled - began
        record.execute_time = executed - scheduled
        record.sample_time = sampled - executed
        record.update_time = self.clock() - sampled
        self.scheduler.observe_times(record)
