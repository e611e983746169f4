"""The workloads through the public API: engine process, sockets, detokenizing and all."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import Any

import anyio

from kernelserve.bench.machine import peak_rss_mb
from kernelserve.bench.workloads import WARM_UP, Workload, make_workloads
from kernelserve.client.async_llm import AsyncLLM
from kernelserve.client.engine_options import EngineOptions
from kernelserve.protocol import EngineReady
from kernelserve.sampling_params import RequestOutputKind, SamplingParams

__all__ = ["measure_cold_start", "measure_serving"]

_COLD_START = """
import json, sys
import kernelserve as ks
model, prompt, options = json.loads(sys.argv[1])
llm = ks.LLM(model, show_progress=False, **options)
ready = llm.engine
prompt = [token % ready.vocab_size for token in prompt]
params = ks.SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
[output] = llm.generate({"prompt_token_ids": prompt}, params, use_tqdm=False)
assert output.outputs[0].token_ids
print("first token", json.dumps(ready.load_seconds), flush=True)
sys.stdin.read()
llm.close()
"""


async def measure_serving(
    name: str, model: str, options: EngineOptions, repetitions: int
) -> AsyncIterator[dict[str, Any]]:
    """Yield one result for each repetition of w1 to w4 but the first, which warms up."""
    async with AsyncLLM(model, **options) as engine:
        ready = await engine.start()
        for workload in make_workloads()[name][: repetitions + 1]:
            await engine.reset_prefix_cache()
            result = await _run(engine, ready, workload)
            if workload.repetition != WARM_UP:
                yield result


def measure_cold_start(
    model: str, options: EngineOptions, repetitions: int
) -> Iterator[dict[str, Any]]:
    """Yield the seconds from the start of an interpreter to the first token; warm disk."""
    [workload] = make_workloads()["w5"]
    arguments = json.dumps([model, workload.prompts[0], dict(options)])
    for repetition in range(1, repetitions + 1):
        started = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-c", _COLD_START, arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            seconds = time.perf_counter() - started
            process.communicate("")
        if not line.startswith("first token"):
            raise SystemExit(
                f"w5: the process ended with {process.returncode} before its first token"
            )
        yield {
            "bench": "w5",
            "rep": repetition,
            "cold_s": round(seconds, 3),
            "load_seconds": json.loads(line.removeprefix("first token")),
        }


async def _run(engine: AsyncLLM, ready: EngineReady, workload: Workload) -> dict[str, Any]:
    params = SamplingParams(
        temperature=0,
        max_tokens=workload.max_tokens,
        ignore_eos=True,
        output_kind=RequestOutputKind.DELTA,
    )
    arrivals: list[list[float]] = [[] for _ in workload.prompts]
    cached = [0] * len(workload.prompts)

    async def one(index: int, prompt: list[int]) -> None:
        ids = [token % ready.vocab_size for token in prompt]
        async for output in engine.generate({"prompt_token_ids": ids}, params):
            now = time.perf_counter()
            arrivals[index] += [now] * len(output.outputs[0].token_ids)
            cached[index] = output.num_cached_tokens or 0

    started = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for index, prompt in enumerate(workload.prompts):
            tasks.start_soon(one, index, prompt)
    wall = time.perf_counter() - started
    got = sum(map(len, arrivals))
    if got != workload.num_output_tokens:
        raise SystemExit(f"{workload.name}: {got} tokens of {workload.num_output_tokens}")
    result = {
        "bench": workload.name,
        "rep": workload.repetition,
        "model": ready.config.model,
        "dtype": ready.config.dtype,
        "device": ready.config.device,
        "wall_s": round(wall, 3),
        "ttft_ms": _milliseconds(times[0] - started for times in arrivals),
        "out_tok_s": round(got / wall, 1),
        "total_tok_s": round((got + workload.num_prompt_tokens) / wall, 1),
        "cached_tokens": sum(cached),
        "engine_peak_mb": peak_rss_mb(ready.pid),
    }
    return result | _one_stream(workload, arrivals[0], started)


def _one_stream(workload: Workload, arrivals: list[float], started: float) -> dict[str, Any]:
    """Figures that only mean something when a request ran alone."""
    if len(workload.prompts) > 1:
        return {}
    figures: dict[str, Any] = {
        "prompt_tok_s": round(workload.num_prompt_tokens / (arrivals[0] - started), 1)
    }
    if len(arrivals) > 1:
        gaps = sorted(b - a for a, b in pairwise(arrivals))
        figures |= {
            "decode_tok_s": round((len(arrivals) - 1) / (arrivals[-1] - arrivals[0]), 2),
            "itl_ms": round(1e3 * statistics.median(gaps), 3),
            "itl_p99_ms": round(1e3 * gaps[int(len(gaps) * 0.99)], 3),
        }
    return figures


def _milliseconds(seconds: Iterator[float]) -> float:
    return round(1e3 * statistics.mean(seconds), 2)
