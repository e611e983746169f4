"""What a step costs without a model: schedule and update, by running and waiting requests."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kernelserve.config import EngineConfig
from kernelserve.core.kv_cache_manager import KVCacheManager
from kernelserve.core.request import Request
from kernelserve.core.scheduler import Scheduler
from kernelserve.executor.fake import FakeExecutor
from kernelserve.protocol import EngineCoreRequest
from kernelserve.sampling_params import SamplingParams

__all__ = ["measure_scheduler"]

_CASES = ((1, 0), (64, 0), (256, 0), (1, 10_000), (64, 10_000), (256, 10_000))
"""(running, waiting)"""
_PROMPT_TOKENS = 128
_STEPS = 200
_WARM_UP_STEPS = 20
_BLOCK_SIZE = 16


@dataclass(slots=True)
class _Step:
    schedule: float
    update: float


def measure_scheduler(steps: int = _STEPS) -> Iterator[dict[str, Any]]:
    """Yield milliseconds of a step that decodes one token for every running request."""
    for running, waiting in _CASES:
        gc.collect()
        gc.freeze()  # as the engine process does once it is loaded
        measured = _measure(running, waiting, steps)
        gc.unfreeze()
        totals = [1e3 * (step.schedule + step.update) for step in measured]
        yield {
            "bench": "engine",
            "running": running,
            "waiting": waiting,
            "steps": len(measured),
            "step_ms": round(statistics.median(totals), 4),
            "step_p99_ms": round(sorted(totals)[int(len(totals) * 0.99)], 4),
            "schedule_ms": round(1e3 * statistics.median(step.schedule for step in measured), 4),
            "update_ms": round(1e3 * statistics.median(step.update for step in measured), 4),
        }


def _measure(running: int, waiting: int, steps: int) -> list[_Step]:
    max_model_len = _PROMPT_TOKENS + steps + 2 * _WARM_UP_STEPS
    num_blocks = 1 + running * -(-max_model_len // _BLOCK_SIZE)
    config = EngineConfig(
        block_size=_BLOCK_SIZE,
        num_gpu_blocks=num_blocks,
        max_model_len=max_model_len,
        max_num_seqs=running,
        max_num_batched_tokens=max(running * _PROMPT_TOKENS, 2048),
    )
    scheduler = _make_scheduler(config, num_blocks, max_model_len)
    executor = FakeExecutor(config, lambda *_: None)
    for i in range(running + waiting):
        scheduler.add_request(_make_request(i, max_model_len))
    measured = [_step(scheduler, executor, running) for _ in range(_WARM_UP_STEPS + steps)]
    return measured[_WARM_UP_STEPS:]


def _step(scheduler: Scheduler, executor: FakeExecutor, running: int) -> _Step:
    now = time.monotonic()
    started = time.perf_counter()
    plan = scheduler.schedule(now)
    scheduled = time.perf_counter()
    assert len(plan.num_scheduled_tokens) == running, "the case is not what it says"
    executor.execute_model(plan)
    output = executor.sample_tokens()
    executed = time.perf_counter()
    scheduler.update_from_output(plan, output, now)
    return _Step(scheduled - started, time.perf_counter() - executed)


def _make_scheduler(config: EngineConfig, num_blocks: int, max_model_len: int) -> Scheduler:
    kv_cache_manager = KVCacheManager(
        num_blocks,
        block_size=config.block_size,
        max_model_len=max_model_len,
        enable_prefix_caching=True,
    )
    return Scheduler(
        kv_cache_manager,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_model_len=max_model_len,
    )


def _make_request(index: int, max_model_len: int) -> Request:
    prompt = [10 + (index * 7919 + position * 31) % 900 for position in range(_PROMPT_TOKENS)]
    params = SamplingParams(temperature=0, max_tokens=max_model_len - _PROMPT_TOKENS)
    params.ignore_eos = True
    core_request = EngineCoreRequest(
        request_id=f"r{index}",
        prompt_token_ids=prompt,
        sampling_params=params,
        arrival_time=0.0,
    )
    return Request.from_engine_core_request(core_request, block_size=_BLOCK_SIZE, now=0.0)
