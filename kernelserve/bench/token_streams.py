"""Streams of one engine, and what a token of them costs this process."""

from __future__ import annotations

import statistics
import time
from typing import Any

import anyio

from kernelserve.client.async_llm import AsyncLLM
from kernelserve.sampling_params import SamplingParams

__all__ = ["measure_streams", "read_stream"]

_PROMPT = [11, 12, 13, 14]


async def read_stream(engine: AsyncLLM, params: SamplingParams) -> float:
    """Read one answer to its end; return the seconds."""
    started = time.perf_counter()
    async for _ in engine.generate({"prompt_token_ids": _PROMPT}, params):
        pass
    return time.perf_counter() - started


async def measure_streams(
    engine: AsyncLLM, params: SamplingParams, streams: int, *, repetitions: int
) -> dict[str, Any]:
    """Return medians of the wall time and the processor time of this process for a token.

    `client_cpu_us` is all of it, `reader_cpu_us` the part of this thread, which reads the streams. The rest is the
    client thread and its sockets.
    """
    runs = [await _run(engine, params, streams) for _ in range(repetitions)]
    wall, used, reader = (statistics.median(column) for column in zip(*runs, strict=True))
    tokens = streams * (params.max_tokens or 0)
    return {
        "streams": streams,
        "tokens": tokens,
        "runs": repetitions,
        "wall_us": round(1e6 * wall / tokens, 1),
        "client_cpu_us": round(1e6 * used / tokens, 1),
        "reader_cpu_us": round(1e6 * reader / tokens, 1),
        "tok_s": round(tokens / wall),
    }


async def _run(
    engine: AsyncLLM, params: SamplingParams, streams: int
) -> tuple[float, float, float]:
    """Read all streams at once; return seconds: wall, this process, this thread."""
    clocks = (time.perf_counter, time.process_time, time.thread_time)
    started = [clock() for clock in clocks]
    async with anyio.create_task_group() as tasks:
        for _ in range(streams):
            tasks.start_soon(read_stream, engine, params)
    wall, used, reader = (clock() - start for clock, start in zip(clocks, started, strict=True))
    return wall, used, reader
