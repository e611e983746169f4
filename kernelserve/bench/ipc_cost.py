"""What the way between notebook and engine costs, with a model that takes no time."""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

from kernelserve.bench.token_streams import measure_streams, read_stream
from kernelserve.client.async_llm import AsyncLLM
from kernelserve.client.llm import LLM
from kernelserve.sampling_params import RequestOutputKind, SamplingParams

__all__ = ["measure_ipc"]

_PINGS = 500
_REQUESTS = 300
_STREAMS = 64
_TOKENS = 256
_REPETITIONS = 3
_SLOT = "bench-ipc"


async def measure_ipc() -> AsyncIterator[dict[str, Any]]:
    """Yield microseconds of a utility call, a one-token request, a token among many streams."""
    async with AsyncLLM(fake_model=True, name=_SLOT) as engine:
        await read_stream(engine, _params(8))
        yield _figures("ping", [await _timed(engine.check_health) for _ in range(_PINGS)])
        yield _figures(
            "one token", [await read_stream(engine, _params(1)) for _ in range(_REQUESTS)]
        )
        yield {"bench": "ipc", "what": "token of a stream"} | await measure_streams(
            engine, _params(_TOKENS), _STREAMS, repetitions=_REPETITIONS
        )
        blocking = LLM(fake_model=True, name=_SLOT, show_progress=False)
        yield _figures("ping, blocking", [_timed_blocking(blocking) for _ in range(_PINGS)])


def _params(max_tokens: int) -> SamplingParams:
    return SamplingParams(
        temperature=0,
        max_tokens=max_tokens,
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )


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
