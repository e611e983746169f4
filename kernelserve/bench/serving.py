"""The workloads through the public API: engine process, sockets, detokenizing and all."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio

from kernelserve.bench.machine import peak_rss_mb
from kernelserve.bench.peers.figures import figures
from kernelserve.bench.workloads import WARM_UP, Workload, make_workloads
from kernelserve.client.async_llm import AsyncLLM
from kernelserve.client.engine_options import EngineOptions
from kernelserve.protocol import EngineReady
from kernelserve.sampling_params import RequestOutputKind, SamplingParams

__all__ = ["answer", "measure_cold_start", "measure_serving"]

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
    started = time.perf_counter()
    arrivals, cached = await answer(engine, ready.vocab_size, workload.prompts, workload.max_tokens)
    got = sum(map(len, arrivals))
    if got != workload.num_output_tokens:
        raise SystemExit(f"{workload.name}: {got} tokens of {workload.num_output_tokens}")
    return {
        "bench": workload.name,
        "rep": workload.repetition,
        "model": ready.config.model,
        "dtype": ready.config.dtype,
        "device": ready.config.device,
        **figures(workload.num_prompt_tokens, started, arrivals),
        "cached_tokens": cached,
        "engine_peak_mb": peak_rss_mb(ready.pid),
    }


async def answer(
    engine: AsyncLLM, vocab_size: int, prompts: list[list[int]], max_tokens: int
) -> tuple[list[list[float]], int]:
    """Send the prompts at once; return for each the times of its tokens, and how many prompt tokens were cached."""
    params = SamplingParams(
        temperature=0,
        max_tokens=max_tokens,
        ignore_eos=True,
        output_kind=RequestOutputKind.DELTA,
    )
    arrivals: list[list[float]] = [[] for _ in prompts]
    cached = [0] * len(prompts)

    async def one(index: int, prompt: list[int]) -> None:
        ids = [token % vocab_size for token in prompt]
        async for output in engine.generate({"prompt_token_ids": ids}, params):
            now = time.perf_counter()
            arrivals[index] += [now] * len(output.outputs[0].token_ids)
            cached[index] = output.num_cached_tokens or 0

    async with anyio.create_task_group() as tasks:
        for index, prompt in enumerate(prompts):
            tasks.start_soon(one, index, prompt)
    return arrivals, sum(cached)
