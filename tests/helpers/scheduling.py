"""A scheduler with a runner that checks every step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kernelserve.core.encoder_cache_manager import EncoderCacheManager
from kernelserve.core.kv_cache_manager import KVCacheManager
from kernelserve.core.request import Request, RequestStatus
from kernelserve.core.scheduler import Scheduler
from kernelserve.core.scheduler_output import SchedulerOutput
from kernelserve.protocol import EngineCoreEvent, FinishReason, PrefillStats
from kernelserve.sampling_params import SamplingParams
from tests.helpers.checking_runner import (
    VOCAB_SIZE,
    CheckingRunner,
    Images,
    chain,
    embed_positions,
    fake_image,
    next_token,
    solo_output,
)

__all__ = [
    "VOCAB_SIZE",
    "CheckingRunner",
    "Engine",
    "Images",
    "Received",
    "chain",
    "embed_positions",
    "fake_image",
    "next_token",
    "solo_output",
]


@dataclass
class Received:
    """What a client has received for one request."""

    token_ids: list[int] = field(default_factory=list)
    events: list[EngineCoreEvent] = field(default_factory=list)
    prefill_stats: list[PrefillStats] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None


class Engine:
    """Scheduler and runner in a loop; every step checks integrity, budgets and that nothing follows an end."""

    def __init__(
        self,
        *,
        num_blocks: int = 65,
        block_size: int = 4,
        max_model_len: int = 512,
        enable_prefix_caching: bool = True,
        max_num_seqs: int = 8,
        max_num_batched_tokens: int = 64,
        encoder_cache_size: int = 0,
        **options: Any,
    ) -> None:
        self.block_size = block_size
        self.kv = KVCacheManager(
            num_blocks,
            block_size=block_size,
            max_model_len=max_model_len,
            enable_prefix_caching=enable_prefix_caching,
        )
        self.scheduler = Scheduler(
            self.kv,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
            encoder_cache=EncoderCacheManager(encoder_cache_size),
            **options,
        )
        self.runner = CheckingRunner(block_size, encoder_cache_size)
        self.runner.whole_images = options.get("whole_images", False)
        self.received: dict[str, Received] = {}
        self.now = 0.0

    def request(
        self,
        request_id: str,
        prompt: list[int],
        *,
        max_tokens: int | None = 4,
        priority: int = 0,
        arrival_time: float | None = None,
        cache_salt: str | None = None,
        client_index: int = 0,
        images: Images = (),
        **params: Any,
    ) -> Request:
        self.now += 1
        return Request(
            request_id,
            prompt,
            SamplingParams(max_tokens=max_tokens, **params),
            block_size=self.block_size,
            now=self.now,
            arrival_time=self.now if arrival_time is None else arrival_time,
            priority=priority,
            cache_salt=cache_salt,
            client_index=client_index,
            mm_features=images,
        )

    def submit(self, request_id: str, prompt: list[int], **options: Any) -> Request:
        request = self.request(request_id, prompt, **options)
        assert self.scheduler.why_impossible(request) is None
        self.received[request_id] = Received()
        self.scheduler.add_request(request)
        return request

    def schedule(self) -> SchedulerOutput:
        self.now += 1
        plan = self.scheduler.schedule(self.now)
        self.scheduler.check_integrity()
        return plan

    def execute_and_update(self, plan: SchedulerOutput) -> None:
        output = self.runner.execute(plan)
        outputs = self.scheduler.update_from_output(plan, output, self.now)
        for core_output in (o for of_client in outputs.values() for o in of_client):
            received = self.received[core_output.request_id]
            assert received.finish_reason is None, "an output after the last one"
            received.token_ids += core_output.new_token_ids
            received.events += core_output.events
            if core_output.prefill_stats is not None:
                received.prefill_stats.append(core_output.prefill_stats)
            received.finish_reason = core_output.finish_reason
            received.stop_reason = core_output.stop_reason
        self.scheduler.check_integrity()

    def step(self) -> SchedulerOutput:
        plan = self.schedule()
        self.execute_and_update(plan)
        return plan

    def abort(self, *request_ids: str) -> list[tuple[str, int]]:
        aborted = self.scheduler.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED)
        self.scheduler.check_integrity()
        return aborted

    def run(self, max_steps: int = 2000) -> list[SchedulerOutput]:
        """Step until nothing is left; fails if that takes too long."""
        plans: list[SchedulerOutput] = []
        while self.scheduler.has_requests():
            assert len(plans) < max_steps, "no progress"
            plans.append(self.step())
        assert not self.runner.rows, "the runner still holds a request"
        stats = self.scheduler.stats()
        assert stats.num_used_blocks == 0
        assert stats.encoder_cache_used == 0
        return plans

    def finish_alone(self, request_id: str, prompt: list[int], **options: Any) -> Received:
        """Submit, run until all is done, return what came."""
        self.submit(request_id, prompt, **options)
        self.run()
        return self.received[request_id]

    def cached_tokens(self, request_id: str) -> int:
        """How many prompt tokens of the request were found in the prefix cache."""
        (stats,) = self.received[request_id].prefill_stats
        return stats.num_cached_tokens
