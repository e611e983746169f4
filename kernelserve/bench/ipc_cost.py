"""What the way between notebook and engine costs, with a model that takes no time."""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio

from kernelserve.client.async_llm import AsyncLLM
from kernelserve.client.llm import LLM
from kernelserve.sampling_params import RequestOutputKind, SamplingParams

__all__ = ["measure_ipc"]

_PINGS = 500
_REQUESTS = 300
_STREAMS = 64
_TOKENS = 256
_SLOT = "bench-ipc"


async def measure_ipc() -> AsyncIterator[dict[str, Any]]:
    """Yield microseconds of a utility call, a one-token request, a token among many streams."""
    async with AsyncLLM(fake_model=True, name=_SLOT) as engine:
        await _stream(engine, 8)
        yield _figures("ping", [await _timed(engine.check_health) for _ in range(_PINGS)])
        yield _figures("one token", [await _stream(engine, 1) for _ in range(_REQUESTS)])
        yield await _many_streams(engine)
        blocking = LLM(fake_model=True, name=_SLOT, show_progress=False)
        yield _figures("ping, blocking", [_timed_blocking(blocking) for _ in range(_PINGS)])


async def _many_streams(engine: AsyncLLM) -> dict[str, Any]:
    """Wall and processor time of this process for a token, its consumer included."""
    started, processor = time.perf_counter(), time.process_time()
    async with anyio.create_task_group() as tasks:
        for _ in range(_STREAMS):
            tasks.start_soon(_stream, engine, _TOKENS)
    wall, used = time.perf_counter() - started, time.process_time() - processor
    tokens = _STREAMS * _TOKENS
    return {
        "bench": "ipc",
        "what": "token of a stream",
        "streams": _STREAMS,
        "tokens": tokens,
        "wall_us": round(1e6 * wall / tokens, 1),
        "client_cpu_us": round(1e6 * used / tokens, 1),
        "tok_s": round(tokens / wall),
    }


async def _stream(engine: AsyncLLM, max_tokens: int) -> float:
    params = SamplingParams(
        temperature=0,
        max_tokens=max_tokens,
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )
    started = time.perf_counter()
    async for _ in engine.generate({"prompt_token_ids": [11, 12, 13, 14]}, params):
        pass
    return time.perf_counter() - started


async def _timed(call: Any) -> float:
    started = time.perf_counter()
    await call()
    return time.perf_counter() - started


def _timed_blocking(llm: LLM) -> float:
    started = time.perf_counter()
    llm.check_health()
    return time.perf_counter() - started


def _figures(what: str, seconds: list[float]) -> dict[str, Any]:
    microseconds = sorted(1e6 * value for value in seconds)
    return {
        "bench": "ipc",
        "what": what,
        "count": len(microseconds),
        "median_us": round(statistics.median(microseconds), 1),
        "p99_us": round(microseconds[int(len(microseconds) * 0.99)], 1),
    }
