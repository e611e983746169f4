"""How much an open dashboard slows the engine down: pairs of the same work, without and with it."""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

import kernelserve as ks
from kernelserve_widgets.dashboard.dashboard import Dashboard
from kernelserve_widgets.history.step_history import step_end
from kernelserve_widgets.notebook_session import NotebookSession

__all__ = ["measure_dashboard"]

_STREAMS = 8
_PROMPT_TOKENS = 32
_MAX_TOKENS = 96
_FIRST_ID, _LAST_ID = 100, 900


def measure_dashboard(model: str, options: dict[str, Any], num_pairs: int) -> dict[str, Any]:
    """Run inside a Jupyter kernel. Each pair is the same batch twice, in turn with and without the dashboard first.

    `slowdown` is the median over the pairs of with / without - 1, of the time that the batch took; `step_slowdown` the
    same of the median time of a step inside the engine.
    """
    session = NotebookSession.current()
    with ks.LLM(model, show_progress=False, **options) as llm:
        _run(llm, 0)
        pairs = [_pair(session, llm, index) for index in range(num_pairs)]
    return {
        "bench": "dashboard",
        "model": model,
        "streams": _STREAMS,
        "pairs": num_pairs,
        "slowdown": _median_slowdown([(off[0], on[0]) for off, on, _ in pairs]),
        "step_slowdown": _median_slowdown([(off[1], on[1]) for off, on, _ in pairs]),
        "step_ms": round(1e3 * statistics.median(off[1] for off, *_ in pairs), 2),
        "frames_per_s": round(statistics.median(frames for *_, frames in pairs), 1),
        "slowdowns": [round(on[0] / off[0] - 1, 4) for off, on, _ in pairs],
    }


def _pair(
    session: NotebookSession, llm: ks.LLM, index: int
) -> tuple[tuple[float, float], tuple[float, float], float]:
    """Return (batch, step) seconds without and with the dashboard, and its frames a second."""
    without = _run(llm, index) if index % 2 else None
    shown = Dashboard(session)
    shown.show()
    shown.flush()
    before = shown.num_frames
    with_it = _run(llm, index)
    frames = (shown.num_frames - before) / with_it[0]
    shown.close()
    return without or _run(llm, index), with_it, frames


def _run(llm: ks.LLM, seed: int) -> tuple[float, float]:
    """Return the seconds of a batch, and the median of its decode steps."""
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
    began = time.perf_counter()
    llm.generate(prompts, params, use_tqdm=False)
    seconds = time.perf_counter() - began
    records = llm.recent_step_records(first)
    steps = [step_end(one) - one.timestamp for one in records if not one.num_prefill_tokens]
    return seconds, statistics.median(steps)


def _median_slowdown(pairs: list[tuple[float, float]]) -> float:
    return round(statistics.median(on / off - 1 for off, on in pairs), 4)
