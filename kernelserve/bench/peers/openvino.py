"""OpenVINO GenAI: its plain pipeline for one prompt, its continuous batching for many."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai

from .player import Answer, Job, Player, play

__all__ = ["load", "prepare"]

_VARIANTS = ("int8", "fp16")
_BEST = "int8"
_CACHE_GB = 2
_END = 2  # SmolLM2's; it is ignored, but the configuration must name one


def prepare(models: Path) -> None:
    """Export the folder with its own tool, once for each precision of the weights."""
    for variant in _VARIANTS:
        target = models / f"openvino-{variant}"
        if target.exists():
            continue
        partial = target.with_suffix(".partial")
        tool = Path(sys.executable).with_name("optimum-cli")
        task = ["--task", "text-generation-with-past", "--weight-format", variant]
        source = ["--model", str(models / "smollm2-135m")]
        subprocess.run([tool, "export", "openvino", *source, *task, partial], check=True)
        partial.rename(target)


def load(job: Job) -> Player:
    """Load the variant `int8` or `fp16` of the weights."""
    variant = job.variant or _BEST
    folder = str(job.models / f"openvino-{variant}")
    properties = {"INFERENCE_NUM_THREADS": job.threads}
    make = _plain if job.streams == 1 else _batching
    what = f"OpenVINO GenAI {genai.__version__}, {variant}, {make.__name__.strip('_')}"
    return Player(what, make(folder, properties))


def _plain(folder: str, properties: dict[str, Any]) -> Answer:
    pipeline = genai.LLMPipeline(folder, "CPU", **properties)

    def answer(prompts: list[list[int]], max_tokens: int) -> list[list[float]]:
        times: list[float] = []

        def streamer(tokens: Any) -> Any:
            times.extend([time.perf_counter()] * np.size(tokens))
            return genai.StreamingStatus.RUNNING

        pipeline.generate(_tensor(prompts[0]), _greedy(max_tokens), _Streamer(streamer))
        return [times]

    return answer


class _Streamer(genai.StreamerBase):  # type: ignore[misc]
    """Hands over token ids; a plain function would get text."""

    def __init__(self, write: Callable[[Any], Any]) -> None:
        super().__init__()
        self.write = write

    def end(self) -> None:
        """Nothing is left to do."""


def _batching(folder: str, properties: dict[str, Any]) -> Answer:
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = _CACHE_GB
    scheduler.enable_prefix_caching = True
    scheduler.dynamic_split_fuse = True
    scheduler.max_num_batched_tokens = 2048
    pipeline = genai.ContinuousBatchingPipeline(folder, scheduler, "CPU", properties)

    def answer(prompts: list[list[int]], max_tokens: int) -> list[list[float]]:
        times: list[list[float]] = [[] for _ in prompts]
        handles = [
            pipeline.add_request(i, _tensor(prompt), _greedy(max_tokens))
            for i, prompt in enumerate(prompts)
        ]
        while pipeline.has_non_finished_requests():
            pipeline.step()
            now = time.perf_counter()
            for handle, own in zip(handles, times, strict=True):
                while handle.can_read():
                    for output in handle.read().values():
                        own.extend([now] * len(output.generated_ids))
        return times

    return answer


def _tensor(prompt: list[int]) -> Any:
    return openvino.Tensor(np.array([prompt], dtype=np.int64))


def _greedy(max_tokens: int) -> Any:
    config = genai.GenerationConfig()
    config.max_new_tokens = max_tokens
    config.ignore_eos = True
    config.do_sample = False
    config.eos_token_id = _END
    config.stop_token_ids = set()
    config.apply_chat_template = False
    return config


if __name__ == "__main__":
    play(load)
