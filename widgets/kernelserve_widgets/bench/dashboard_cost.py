"""How much an open dashboard slows the engine down: pairs of the same work, without and with it."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import kernelserve as ks
from kernelserve_widgets.dashboard.dashboard import Dashboard
from kernelserve_widgets.history.step_history import step_end
from kernelserve_widgets.notebook_session import NotebookSession

__all__ = ["measure_dashboard"]

_STREAMS = 4
_PROMPT_TOKENS = 32
_MAX_TOKENS = 256
_FIRST_ID, _LAST_ID = 100, 900


def measure_dashboard(
    model: str, options: dict[str, Any], num_pairs: int
) -> Iterator[dict[str, Any]]:
    """Run inside a Jupyter kernel. Each pair is the same batch twice, in turn with and without the dashboard first.

    Yields a line for each pair, then their medians. `slowdown` is with / without - 1 of the time that the batch took;
    `step_slowdown` the same of the median time of a step inside the engine. `kernel_cpu` is the processor time that the
    dashboard adds to the notebook's process, as a share of one core: it can be trusted on a busy machine too.
    """
    session = NotebookSession.current()
    pairs = []
    with ks.LLM(model, show_progress=False, **options) as llm:
        _run(llm, 0)
        for index in range(num_pairs):
            pairs.append(_pair(session, llm, index))
            yield {"bench": "dashboard pair"} | pairs[-1]
    medians = {key: statistics.median(pair[key] for pair in pairs) for key in pairs[0]}
    yield {"bench": "dashboard", "model": model, "streams": _STREAMS, "pairs": num_pairs} | medians


class _Run(NamedTuple):
    seconds: float
    """Of the batch."""
    step_s: float
    """Median of its decode steps."""
    cpu: float
    """Processor time of this process for each second."""


def _pair(session: NotebookSession, llm: ks.LLM, index: int) -> dict[str, float]:
    off = _run(llm, index) if index % 2 else None
    shown = Dashboard(session)
    shown.show()
    shown.flush()
    num_frames = shown.num_frames
    on = _run(llm, index)
    num_frames = shown.num_frames - num_frames
    shown.close()
    off = off or _run(llm, index)
    return {
        "slowdown": round(on.seconds / off.seconds - 1, 4),
        "step_slowdown": round(on.step_s / off.step_s - 1, 4),
        "kernel_cpu": round(on.cpu - off.cpu, 4),
        "step_ms": round(1e3 * off.step_s, 2),
        "frames_per_s": round(num_frames / on.seconds, 1),
    }


def _run(llm: ks.LLM, seed: int) -> _Run:
    """Generate a batch."""
    numbers = random.Random(seed)
    prompts: list[Any] = [
        [numbers.randrange(_FIRST_ID, _LAST_ID) for _ in range(_PROMPT_TOKENS)]
        for _ in range(_STREAMS)
    ]
    params = ks.SamplingParams(
        temperature=0, max_tokens=_MAX_TOKENS, ignore_eos=True, detokenize=False
    )
    llm.reset_prefix_cache()
    first = llm.latest_stats.num_steps
    began, cpu_began = time.perf_counter(), time.process_time()
    llm.generate(prompts, params, use_tqdm=False)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    records = llm.recent_step_records(first)
    steps = [step_end(one) - one.timestamp for one in records if not one.num_prefill_tokens]
    return _Run(seconds, statistics.median(steps), cpu / seconds)
