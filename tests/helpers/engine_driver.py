"""Runs requests through a scheduler and an executor in this process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kernelserve.config import SchedulerPolicy
from kernelserve.core.encoder_cache_manager import EncoderCacheManager
from kernelserve.core.kv_cache_manager import KVCacheManager
from kernelserve.core.request import Request, RequestStatus
from kernelserve.core.scheduler import Scheduler
from kernelserve.executor.executor import Executor
from kernelserve.protocol import (
    EngineCoreOutput,
    FinishReason,
    LogprobsLists,
    MultiModalFeatureSpec,
)
from kernelserve.sampling_params import SamplingParams

__all__ = ["EngineDriver", "Result", "greedy"]


def greedy(max_tokens: int, **options: object) -> SamplingParams:
    """Return params that take the most probable token `max_tokens` times."""
    return SamplingParams(temperature=0, max_tokens=max_tokens, **options)  # type: ignore[arg-type]


@dataclass
class Result:
    """Everything that came out for one request."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[LogprobsLists] = field(default_factory=list)
    prompt_logprobs: LogprobsLists | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    num_cached_tokens: int = 0

    def take(self, output: EngineCoreOutput) -> None:
        """Add the output of one step."""
        assert self.finish_reason is None, "output after the end"
        self.token_ids += output.new_token_ids
        if output.new_logprobs is not None:
            self.logprobs.append(output.new_logprobs)
        if output.new_prompt_logprobs is not None:
            assert self.prompt_logprobs is None, "prompt logprobs came twice"
            self.prompt_logprobs = output.new_prompt_logprobs
        if output.prefill_stats is not None:
            self.num_cached_tokens = output.prefill_stats.num_cached_tokens
        self.finish_reason = output.finish_reason
        self.stop_reason = output.stop_reason


class EngineDriver:
    """A scheduler of its own over an executor that others may use after it, one at a time.

    `num_blocks` may be less than the executor has. Invariants are checked after each step.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        num_blocks: int | None = None,
        chunk: int = 0,
        max_num_seqs: int = 64,
        max_num_batched_tokens: int = 512,
        enable_prefix_caching: bool = True,
        policy: SchedulerPolicy = "fcfs",
        encoder_cache_size: int = 1000,
    ) -> None:
        info = executor.model_info
        self.executor = executor
        self.scheduler = Scheduler(
            KVCacheManager(
                num_blocks or info.num_gpu_blocks,
                block_size=info.block_size,
                max_model_len=info.max_model_len,
                enable_prefix_caching=enable_prefix_caching,
            ),
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=info.max_model_len,
            long_prefill_token_threshold=chunk,
            policy=policy,
            encoder_cache=EncoderCacheManager(encoder_cache_size if info.takes_images else 0),
            whole_images=info.whole_images,
        )
        self.requests: dict[str, Request] = {}
        self.results: dict[str, Result] = {}
        self.num_steps = 0

    def add(
        self,
        req_id: str,
        prompt: Sequence[int],
        params: SamplingParams,
        *,
        priority: int = 0,
        mm_features: Sequence[MultiModalFeatureSpec] = (),
    ) -> None:
        """Queue a request."""
        request = Request(
            req_id,
            list(prompt),
            params,
            block_size=self.executor.model_info.block_size,
            arrival_time=float(len(self.requests)),
            priority=priority,
            mm_features=mm_features,
        )
        assert self.scheduler.why_impossible(request) is None
        self.scheduler.add_request(request)
        self.requests[req_id] = request
        self.results[req_id] = Result()

    def abort(self, req_ids: Iterable[str]) -> None:
        """End requests from outside."""
        self.scheduler.finish_requests(req_ids, RequestStatus.FINISHED_ABORTED)

    def step(self) -> None:
        """Run one step."""
        plan = self.scheduler.schedule(float(self.num_steps))
        self.executor.execute_model(plan)
        output = self.executor.sample_tokens()
        outputs = self.scheduler.update_from_output(plan, output, float(self.num_steps))
        for core_output in outputs.get(0, []):
            self.results[core_output.request_id].take(core_output)
        self.scheduler.check_integrity()
        self.num_steps += 1

    def run(self, *, max_steps: int = 5000) -> dict[str, Result]:
        """Step until nothing is left to do."""
        for _ in range(max_steps):
            if not self.scheduler.has_requests():
                return self.results
            self.step()
        raise AssertionError(f"not done after {max_steps} steps")

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams | Sequence[SamplingParams]
    ) -> list[Result]:
        """Run prompts to their ends and return their results in order."""
        many = [params] * len(prompts) if isinstance(params, SamplingParams) else params
        names = [f"r{len(self.requests) + i}" for i in range(len(prompts))]
        for name, prompt, param in zip(names, prompts, many, strict=True):
            self.add(name, prompt, param)
        results = self.run()
        return [results[name] for name in names]
