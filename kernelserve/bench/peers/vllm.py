"""vLLM's engine for processors, through its asynchronous interface."""

from __future__ import annotations

import asyncio
import os
import time

import vllm
from vllm import AsyncEngineArgs, SamplingParams
from vllm.inputs import TokensPrompt
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

from .player import Job, Player, play

__all__ = ["load"]


def load(job: Job) -> Player:
    """Load the folder in the variant `bfloat16` (the default), `float32` or `eager`, which compiles nothing."""
    cores = sorted(os.sched_getaffinity(0))[: job.threads]
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, cores))
    eager = job.variant == "eager"
    dtype = "bfloat16" if eager or not job.variant else job.variant
    runner = asyncio.Runner()
    arguments = AsyncEngineArgs(
        model=str(job.models / "smollm2-135m"),
        dtype=dtype,
        max_model_len=4096,
        enforce_eager=eager,
    )

    async def start() -> AsyncLLM:
        return AsyncLLM.from_engine_args(arguments)

    engine = runner.run(start())

    async def read(prompt: list[int], max_tokens: int, name: str) -> list[float]:
        params = SamplingParams(
            temperature=0.0,
            max_tokens=max_tokens,
            ignore_eos=True,
            output_kind=RequestOutputKind.DELTA,
        )
        times: list[float] = []
        tokens = TokensPrompt(prompt_token_ids=prompt)
        async for output in engine.generate(tokens, params, name):
            times += [time.perf_counter()] * len(output.outputs[0].token_ids)
        return times

    async def read_all(prompts: list[list[int]], max_tokens: int) -> list[list[float]]:
        names = [f"{time.time_ns()}-{i}" for i in range(len(prompts))]
        reads = [
            read(prompt, max_tokens, name) for prompt, name in zip(prompts, names, strict=True)
        ]
        return await asyncio.gather(*reads)

    return Player(
        f"vLLM {vllm.__version__}, {dtype}{', eager' if eager else ', compiled'}",
        lambda prompts, max_tokens: runner.run(read_all(prompts, max_tokens)),
        engine.shutdown,
    )


if __name__ == "__main__":
    play(load)
