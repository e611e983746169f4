"""The requests of a notebook as a table of text."""

from __future__ import annotations

from kernelserve_widgets.generation_run import GenerationRun
from kernelserve_widgets.notebook_session import NotebookSession

__all__ = ["describe_requests"]

_MAX_ENDED = 10
_PROMPT_CHARS = 40


def describe_requests(session: NotebookSession) -> str:
    """Return a line for each request that runs and for the last ones that ended, newest last."""
    runs = list(session.runs.values())
    ended = [run for run in runs if run.result.finished][-_MAX_ENDED:]
    running = [run for run in runs if not run.result.finished]
    lines = [_line(run) for run in ended + running] or ["no requests yet"]
    llm = session.running_llm()
    if llm is not None:
        stats = llm.stats()
        lines.append(
            f"engine: {stats.num_running_reqs} running, {stats.num_waiting_reqs} waiting (all its clients together)"
        )
    return "\n".join(lines)


def _line(run: GenerationRun) -> str:
    result = run.result
    state = result.finish_reason or "running"
    prompt = repr(
        result.body
        if len(result.body) <= _PROMPT_CHARS
        else f"{result.body[: _PROMPT_CHARS - 3]}..."
    )
    return f"{result.request_id:5} {state:8} {run.counters():45} {prompt}"
