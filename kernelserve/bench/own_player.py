"""Ours as a player of a comparison: engine process, sockets, detokenizing and all."""

from __future__ import annotations

import asyncio
from typing import cast

from kernelserve.bench.peers.player import Job, Player, play
from kernelserve.bench.serving import answer
from kernelserve.client.async_llm import AsyncLLM
from kernelserve.client.engine_options import EngineOptions
from kernelserve.config import DEFAULT_MODEL
from kernelserve.version import __version__

__all__ = ["load"]


def load(job: Job) -> Player:
    """Start an engine of the embedded model with the job's options."""
    runner = asyncio.Runner()
    engine = AsyncLLM(DEFAULT_MODEL, **cast("EngineOptions", job.options))
    ready = runner.run(engine.start())

    async def answer_afresh(prompts: list[list[int]], max_tokens: int) -> list[list[float]]:
        arrivals, _ = await answer(engine, ready.vocab_size, prompts, max_tokens)
        return arrivals

    async def close() -> None:
        async with engine:
            pass

    return Player(
        f"kernelserve {__version__}, {ready.config.dtype}",
        lambda prompts, max_tokens: runner.run(answer_afresh(prompts, max_tokens)),
        lambda: runner.run(close()),
    )


if __name__ == "__main__":
    play(load)
