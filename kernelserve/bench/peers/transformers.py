"""transformers' own generate(), the prompts as one batch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM

from .player import Job, Player, play

__all__ = ["TokenClock", "load"]

_FAST_BFLOAT16 = ("amx_bf16", "avx512_bf16")


class TokenClock:
    """What generate() calls a streamer: keeps the time of every step. Its first call brings the prompts."""

    def __init__(self) -> None:
        """Start empty."""
        self._calls: list[float] = []

    def put(self, _tokens: Any) -> None:
        """Note the time."""
        self._calls.append(time.perf_counter())

    def end(self) -> None:
        """Nothing is left to do."""

    @property
    def times(self) -> list[float]:
        """When each token was there, by `time.perf_counter()`."""
        return self._calls[1:]


def load(job: Job) -> Player:
    """Load the folder in the variant `float32` or `bfloat16`: by default what this processor computes faster."""
    torch.set_num_threads(job.threads)
    dtype = job.variant or _best_dtype()
    model = AutoModelForCausalLM.from_pretrained(
        job.models / "smollm2-135m", dtype=getattr(torch, dtype), attn_implementation="sdpa"
    ).eval()

    @torch.inference_mode()
    def answer(prompts: list[list[int]], max_tokens: int) -> list[list[float]]:
        ids = torch.tensor(prompts)
        clock = TokenClock()
        model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_tokens,
            min_new_tokens=max_tokens,
            do_sample=False,
            streamer=clock,
        )
        return [clock.times] * len(prompts)

    return Player(f"transformers {transformers.__version__}, {dtype}, sdpa", answer)


def _best_dtype() -> str:
    flags = Path("/proc/cpuinfo").read_text().split()
    return "bfloat16" if any(flag in flags for flag in _FAST_BFLOAT16) else "float32"


if __name__ == "__main__":
    play(load)
