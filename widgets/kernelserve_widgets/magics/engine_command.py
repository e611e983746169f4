"""What %engine does: look at the engine, its log and its siblings; stop, restart and attach."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path

import kernelserve as ks
from kernelserve.errors import EngineDeadError, InvalidRequestError
from kernelserve.step_record import SchedulerStats
from kernelserve_widgets.notebook_session import NotebookSession

__all__ = ["EngineCommand"]

_LOG_LINES = 40
_NONE = "no engine runs in this notebook: start one with %serve"
_ORDER = (
    "%%generate uses, in this order: the engine that %serve started or attached to; the one of ks.LLM(...) in this "
    "notebook; else it starts the default model."
)


class EngineCommand:
    """The actions of %engine by name."""

    def __init__(self, session: NotebookSession) -> None:
        self._session = session
        self._actions: dict[str, Callable[..., None]] = {
            "status": self._status,
            "logs": self._logs,
            "restart": self._restart,
            "stop": self._stop,
            "list": self._list,
            "attach": self._attach,
        }

    def run(self, line: str) -> None:
        """Do what the line says. Raises InvalidRequestError for what there is not."""
        name, *arguments = line.split() or ["status"]
        action = self._actions.get(name)
        takes_one = name in ("logs", "attach")
        if action is None or len(arguments) > takes_one or (name == "attach" and not arguments):
            raise InvalidRequestError(
                f"%engine {line.strip()!r}: use status, logs [LINES], restart, stop, list or attach NAME"
            )
        action(*arguments)

    def _status(self) -> None:
        llm = self._session.running_llm()
        if llm is None:
            print(f"no engine runs in this notebook\n{_ORDER}")
            return
        engine, stats = llm.engine, llm.stats()
        cache = stats.prefix_cache_stats
        print(
            f"{engine.describe()}\n"
            f"pid {engine.pid} · {stats.num_running_reqs} running, {stats.num_waiting_reqs} waiting · "
            f"{stats.num_steps:,} steps · {stats.num_preemptions:,} preemptions\n"
            f"KV blocks: {stats.num_used_blocks:,} used, {stats.num_cached_blocks:,} cached, "
            f"{stats.num_free_blocks:,} free of {stats.num_total_blocks:,} · prefix hits {cache.hit_rate:.0%}\n"
            f"{_describe_encoder(stats)}"
            f"log: {engine.log_path}\n{_ORDER}"
        )

    def _logs(self, lines: str = str(_LOG_LINES)) -> None:
        if not lines.isdigit():
            raise InvalidRequestError(f"%engine logs {lines!r}: give a number of lines")
        path = self._log_path()
        with path.open(errors="replace") as file:
            print("".join(deque(file, maxlen=int(lines))), end="")
        print(f"({path})")

    def _log_path(self) -> Path:
        """The log of the engine that runs; else of the one that died or did not start."""
        running = self._session.running_llm()
        path = running.engine.log_path if running is not None else self._session.log_path
        if not path or not Path(path).exists():
            raise EngineDeadError(_NONE)
        return Path(path)

    def _restart(self) -> None:
        llm = self._session.keep_engine()
        if llm is None:
            raise EngineDeadError(_NONE)
        llm.restart()
        print(llm.engine.describe())

    def _stop(self) -> None:
        running = self._session.running_llm()
        if running is None and self._session.forget_engine() is None:
            raise EngineDeadError(_NONE)
        if running is not None:
            running.stop()
        self._session.forget_engine()

    def _list(self) -> None:
        engines = ks.list_engines()
        for engine in engines:
            print(
                f"{engine.name:12} {engine.engine_id}  pid {engine.pid:<8} {engine.lifetime:9} {engine.model}"
            )
        if not engines:
            print("no engine of yours runs on this machine")

    def _attach(self, name: str) -> None:
        llm = ks.LLM.attach(name)
        self._session.serve(llm, name)
        print(llm.engine.describe())


def _describe_encoder(stats: SchedulerStats) -> str:
    """Return a line about the images of a model that takes some, else nothing."""
    if not stats.encoder_cache_size:
        return ""
    return (
        f"encoder cache: {stats.encoder_cache_used:,} used, {stats.encoder_cache_cached:,} cached of "
        f"{stats.encoder_cache_size:,} embeddings · {stats.encoder_cache_hits:,} of "
        f"{stats.encoder_cache_queries:,} images found\n"
    )
