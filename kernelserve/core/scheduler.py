"""The scheduler: what the engine asks to plan its steps and to take in their results."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from kernelserve.config import SchedulerPolicy
from kernelserve.core.encoder_cache_manager import EncoderCacheManager
from kernelserve.core.image_check import find_image_problem
from kernelserve.core.integrity import check_requests
from kernelserve.core.kv_cache_manager import KVCacheManager
from kernelserve.core.prefill_pacer import PrefillPacer
from kernelserve.core.request import Request, RequestStatus
from kernelserve.core.scheduler_limits import SchedulerLimits
from kernelserve.core.scheduler_output import ModelRunnerOutput, SchedulerOutput
from kernelserve.core.scheduler_state import SchedulerState
from kernelserve.core.step_planner import StepPlanner
from kernelserve.core.step_recorder import StepRecorder
from kernelserve.core.step_updater import StepUpdater
from kernelserve.protocol import EngineCoreOutput, KVCacheMap, SchedulerStats, StepRecord

__all__ = ["Scheduler"]


class Scheduler:
    """Plans steps under one token budget. Not thread-safe: it belongs to the engine's busy loop.

        while scheduler.has_requests():
            plan = scheduler.schedule(now)
            output = execute(plan)
            outputs = scheduler.update_from_output(plan, output, now)

    Each plan is executed and given back before the next one is made. Requests may be added and
    finished at any time, also between the schedule and the update of a step.
    """

    def __init__(
        self,
        kv_cache_manager: KVCacheManager,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        long_prefill_token_threshold: int = 0,
        max_step_stretch: float = 0.0,
        policy: SchedulerPolicy = "fcfs",
        num_step_records: int = 4096,
        encoder_cache: EncoderCacheManager | None = None,
        whole_images: bool = False,
    ) -> None:
        self.max_model_len = min(max_model_len, kv_cache_manager.max_model_len)
        """Longest sequence in effect: the model's limit, or what the whole KV cache holds."""
        self._kv = kv_cache_manager
        self._encoder_cache = encoder_cache or EncoderCacheManager(0)
        self._state = SchedulerState(kv_cache_manager, policy, self._encoder_cache)
        limits = SchedulerLimits(max_num_seqs, max_num_batched_tokens, long_prefill_token_threshold)
        self._pacer = PrefillPacer(max_step_stretch)
        self._planner = StepPlanner(self._state, limits, self._pacer, whole_images=whole_images)
        self._updater = StepUpdater(self._state, self.max_model_len)
        self._recorder = StepRecorder(num_step_records)

    @property
    def requests(self) -> dict[str, Request]:
        """The unfinished requests by id."""
        return self._state.requests

    @property
    def step_records(self) -> deque[StepRecord]:
        """The last steps, oldest first; a plan without tokens or preemptions leaves no record."""
        return self._recorder.records

    @property
    def last_record(self) -> StepRecord | None:
        """The record of the last plan, None if it left none."""
        return self._recorder.last_record

    @property
    def max_image_embeds(self) -> int:
        """Most embeddings that an image may have; 0: the model takes no images."""
        return min(self._encoder_cache.capacity, self.max_model_len - 1)

    def why_impossible(self, request: Request) -> str | None:
        """Return why `request` could never run, or None. What fits alone will run at some time."""
        num_prompt = request.num_prompt_tokens
        if num_prompt == 0:
            return "the prompt is empty"
        if num_prompt < self.max_model_len:
            return find_image_problem(request, self._encoder_cache.capacity)
        if self.max_model_len == self._kv.capacity:
            size, num_blocks = self._kv.block_size, self._kv.pool.num_total_blocks
            return (
                f"the prompt of {num_prompt} tokens and one output token need "
                f"{num_prompt // size + 1} KV-cache blocks of {size} tokens, but the whole cache "
                f"has {num_blocks}: shorten the prompt or give the KV cache more memory"
            )
        return (
            f"the prompt has {num_prompt} tokens, but max_model_len={self.max_model_len} leaves "
            f"room for {self.max_model_len - 1} and one output token: shorten the prompt or raise "
            "max_model_len"
        )

    def add_request(self, request: Request) -> None:
        """Queue a request for which `why_impossible` gives None.

        Raises InvalidRequestError if its id is alive; the request that has it goes on unharmed.
        """
        self._state.add(request)
        self._recorder.record_queued(request)

    def finish_requests(
        self, request_ids: Iterable[str], status: RequestStatus
    ) -> list[tuple[str, int]]:
        """End requests from outside; they emit no output. Unknown ids are ignored.

        Returns (id, client index) of those that were alive.
        """
        assert status.is_finished
        found = [self.requests[i] for i in dict.fromkeys(request_ids) if i in self.requests]
        for request in found:
            request.status = status
            self._recorder.record_aborted(request.request_id)
        self._state.finish(found)
        return [(request.request_id, request.client_index) for request in found]

    def schedule(self, now: float) -> SchedulerOutput:
        """Plan the next step. The plan may be empty and still name finished requests."""
        self._state.now = now
        plan = self._planner.plan_step()
        evicted = self._encoder_cache.take_evicted()
        output = plan.build(*self._state.take_changes(), evicted)
        self._recorder.record_schedule(plan, output, self._state)
        return output

    def update_from_output(
        self, plan: SchedulerOutput, output: ModelRunnerOutput, now: float
    ) -> dict[int, list[EngineCoreOutput]]:
        """Take in the result of a step; return what each client is to hear, by client index."""
        self._state.now = now
        outputs, ended = self._updater.update(plan, output, self._recorder.last_record)
        for request in ended:
            self._recorder.record_finished(request.request_id)
        return outputs

    def observe_times(self, record: StepRecord) -> None:
        """Learn from the times in the record of a step how long the parts of prompts may be."""
        seconds = record.execute_time + record.sample_time
        self._pacer.observe(record.num_prefill_tokens, record.num_decode_tokens, seconds)

    def has_unfinished_requests(self) -> bool:
        """Whether any request waits or runs."""
        return bool(self._state.requests)

    def has_requests(self) -> bool:
        """Whether another step is needed: for a request, or to tell the runner what it may forget."""
        state = self._state
        told = not (state.finished_req_ids or state.preempted_req_ids)
        return bool(state.requests) or not told or self._encoder_cache.has_evicted

    def reset_prefix_cache(self, *, reset_running_requests: bool = False) -> bool:
        """Forget all cached prefixes; return whether it was done.

        It is not done while requests run, unless `reset_running_requests` preempts them all first.
        """
        if reset_running_requests:
            for request in reversed(self._state.running.copy()):
                self._state.preempt(request)
        return self._kv.pool.reset()

    def reset_encoder_cache(self) -> bool:
        """Forget the encoded images that no request needs; return whether none is left."""
        return self._encoder_cache.reset()

    def configure(
        self,
        *,
        max_num_seqs: int | None = None,
        max_num_batched_tokens: int | None = None,
        long_prefill_token_threshold: int | None = None,
        policy: SchedulerPolicy | None = None,
    ) -> None:
        """Change limits from the next step on. Lower ones are met in time: they preempt nobody.

        Raises InvalidConfigError, and changes nothing, if a value cannot work.
        """
        limits = self._planner.limits.changed(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            long_prefill_token_threshold=long_prefill_token_threshold,
        )
        if policy is not None and policy != self._state.policy:
            self._state.set_policy(policy)
        self._planner.limits = limits

    def stats(self) -> SchedulerStats:
        """Return the state as it is now, also at rest."""
        pool = self._kv.pool
        return SchedulerStats(
            num_running_reqs=len(self._state.running),
            num_waiting_reqs=len(self._state.waiting),
            num_total_blocks=pool.num_total_blocks,
            num_used_blocks=pool.num_used_blocks,
            num_cached_blocks=pool.num_cached_blocks,
            num_free_blocks=pool.num_free_blocks,
            kv_cache_usage=pool.num_used_blocks / pool.num_total_blocks,
            num_preemptions=self._state.num_preemptions,
            num_steps=self._recorder.num_steps,
            prefix_cache_stats=msgspec.structs.replace(self._kv.prefix_cache_stats),
            encoder_cache_size=self._encoder_cache.capacity,
            encoder_cache_used=self._encoder_cache.num_used_embeds,
            encoder_cache_cached=self._encoder_cache.num_cached_embeds,
            encoder_cache_queries=self._encoder_cache.num_queries,
            encoder_cache_hits=self._encoder_cache.num_hits,
        )

    def kv_cache_map(self) -> KVCacheMap:
        """Return who holds which block now."""
        return self._kv.block_map()

    def check_integrity(self) -> None:
        """Raise AssertionError if a block or a request is lost, doubled or left behind."""
        check_requests(self._state)
