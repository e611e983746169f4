"""Takes in what a step computed: appends tokens, ends requests, makes the outputs."""

from __future__ import annotations

from collections import defaultdict

from kernelserve.core.request import Request, RequestStatus
from kernelserve.core.scheduler_output import ModelRunnerOutput, SchedulerOutput
from kernelserve.core.scheduler_state import SchedulerState
from kernelserve.core.stop_check import check_stop
from kernelserve.protocol import EngineCoreOutput, LogprobsLists, PrefillStats, StepRecord
from kernelserve.wire import WireArray

__all__ = ["StepUpdater", "first_rows"]

_RUNNING = RequestStatus.RUNNING
"""Looked up once: the members of an enum are slow to reach, and this is asked for every token."""


class StepUpdater:
    """Applies a ModelRunnerOutput to the requests of its plan.

    A request that was aborted or preempted since it was planned is passed over: its tokens are
    lost, and if it is still alive they will be sampled again.
    """

    def __init__(self, state: SchedulerState, max_model_len: int) -> None:
        self._state = state
        self._max_model_len = max_model_len

    def update(
        self, plan: SchedulerOutput, output: ModelRunnerOutput, record: StepRecord | None = None
    ) -> tuple[dict[int, list[EngineCoreOutput]], list[Request]]:
        """Return the outputs by client, and the requests that ended. `record` is the one of the plan."""
        outputs: dict[int, list[EngineCoreOutput]] = defaultdict(list)
        has_logprobs = bool(output.logprobs or output.prompt_logprobs)
        ended: list[Request] = []
        sampled = dict(zip(output.req_ids, output.sampled_token_ids, strict=True))
        requests = self._state.requests
        if record is not None and (record.encoder_inputs or record.encoder_hits):
            self._count_images(record, output.encode_time)
        for mm_hash in output.failed_encoder_mm_hashes:
            self._state.encoder_cache.forget(mm_hash)
        for req_id in plan.num_scheduled_tokens:
            request = requests.get(req_id)
            if request is None or request.status is not _RUNNING:
                continue
            if request.mm_features:
                self._release_images(request)
            if output.errors and req_id in output.errors:
                new_token_ids: list[int] = []
                self._fail(request, output.errors[req_id])
            elif request.num_computed_tokens < len(request.all_token_ids):
                continue  # the prompt is not complete yet
            else:
                new_token_ids = self._append(request, sampled.get(req_id))
            core_output = EngineCoreOutput(req_id, new_token_ids)
            if request.status is not _RUNNING:
                ended.append(request)
                core_output.finish_reason = request.finish_reason
                core_output.stop_reason = request.stop_reason
            if has_logprobs or request.events or request.prefill_stats is not None:
                self._attach_details(core_output, request, output)
            outputs[request.client_index].append(core_output)
        self._state.finish(ended)
        return outputs, ended

    def _count_images(self, record: StepRecord, encode_time: float) -> None:
        """Let each request know what its images cost; nobody is told any more after the first token."""
        for entry in record.encoder_inputs:
            if (stats := self._prefill_stats(entry.request_id)) is not None:
                stats.num_encoded_images += 1
        for entry in record.encoder_hits:
            if (stats := self._prefill_stats(entry.request_id)) is not None:
                stats.num_encoder_hits += 1
        for req_id in {entry.request_id for entry in record.encoder_inputs}:
            if (stats := self._prefill_stats(req_id)) is not None:
                stats.encode_time += encode_time

    def _prefill_stats(self, req_id: str) -> PrefillStats | None:
        request = self._state.requests.get(req_id)
        return None if request is None else request.prefill_stats

    def _release_images(self, request: Request) -> None:
        """Let go of the images whose last token is computed: only one that is cut is still needed."""
        done = request.num_computed_tokens
        needed = {
            feature.mm_hash
            for feature in request.mm_features
            if feature.position.offset < done < feature.position.offset + feature.position.length
        }
        self._state.encoder_cache.keep_only(request.request_id, needed)

    def _append(self, request: Request, sampled: list[int] | None) -> list[int]:
        """Append sampled tokens until one ends the request; return those that count."""
        if not sampled:
            # Without a token it would never be scheduled again.
            self._fail(request, "the model runner returned no token for this request")
            return []
        for index, token_id in enumerate(sampled, start=1):
            request.append_output_token(token_id)
            if check_stop(request, self._max_model_len):
                return sampled[:index]
        return sampled

    @staticmethod
    def _fail(request: Request, message: str) -> None:
        request.status = RequestStatus.FINISHED_ERROR
        request.stop_reason = message

    @staticmethod
    def _attach_details(
        core_output: EngineCoreOutput, request: Request, output: ModelRunnerOutput
    ) -> None:
        if output.logprobs and (logprobs := output.logprobs.get(request.request_id)):
            core_output.new_logprobs = first_rows(logprobs, len(core_output.new_token_ids))
        if output.prompt_logprobs:
            core_output.new_prompt_logprobs = output.prompt_logprobs.get(request.request_id)
        if request.events:
            core_output.events = request.take_events()
        if request.prefill_stats is not None:
            core_output.prefill_stats = request.take_prefill_stats()


def first_rows(logprobs: LogprobsLists, num_rows: int) -> LogprobsLists:
    """Return the logprobs of the first `num_rows` positions: tokens after a stop do not count."""
    if logprobs.ranks.shape[0] == num_rows:
        return logprobs
    return LogprobsLists(
        *(
            _first(array, num_rows)
            for array in (logprobs.token_ids, logprobs.logprobs, logprobs.ranks)
        )
    )


def _first(array: WireArray, num_rows: int) -> WireArray:
    row_bytes = array.data.nbytes // array.shape[0]
    return WireArray(array.dtype, (num_rows, *array.shape[1:]), array.data[: num_rows * row_bytes])
