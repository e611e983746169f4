"""What one notebook has: its engine, its requests, its conversations, the thread that refreshes its views."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import kernelserve as ks
from kernelserve_widgets.chat_book import ChatBook
from kernelserve_widgets.dropzone.drop_zones import DropZones
from kernelserve_widgets.flusher import Flusher
from kernelserve_widgets.generation_run import GenerationRun
from kernelserve_widgets.shell import current_shell

if TYPE_CHECKING:
    from kernelserve_widgets.dashboard.dashboard import Dashboard

__all__ = ["NotebookSession"]

_ATTRIBUTE = "kernelserve"
_MAX_ENDED_RUNS = 100


class NotebookSession:
    """One for each IPython shell: `get_ipython().kernelserve`.

    The engine is the one that the notebook already uses, whether `%serve` or `ks.LLM(...)` started it. Only what
    `%serve` started is held here: an `LLM` of the user's ends its engine when the user lets go of it.
    """

    def __init__(self) -> None:
        self.flusher = Flusher()
        self.chats = ChatBook()
        self.zones = DropZones(self._image_side)
        self.runs: dict[str, GenerationRun] = {}
        """By request id, oldest first: all that run, and the last ones that ended."""
        self.start_engine: Callable[[], ks.LLM] = ks.LLM
        """Starts an engine when one is needed and none runs."""
        self.dashboard: Dashboard | None = None
        """The one that is open."""
        self.log_path = ""
        """Log of the engine that was used last, or that could not be started; empty: there was none."""
        self._served: ks.LLM | None = None
        self._slot = "default"
        self._numbers = itertools.count(1)

    @classmethod
    def current(cls) -> NotebookSession:
        """Return the session of the running shell, made on first use."""
        return cls.of(current_shell())

    @classmethod
    def of(cls, shell: Any) -> NotebookSession:
        """Return the session of a shell; without a shell, a new one."""
        session = getattr(shell, _ATTRIBUTE, None)
        if not isinstance(session, cls):
            session = cls()
            if shell is not None:
                setattr(shell, _ATTRIBUTE, session)
        return session

    def serve(self, llm: ks.LLM, slot: str) -> None:
        """Use this engine from now on, and keep it open."""
        self._served, self._slot = llm, slot
        self.log_path = llm.engine.log_path

    def llm(self) -> ks.LLM:
        """Return the engine of this notebook, started if none runs. Raises an EngineStartError."""
        if (running := ks.LLM.running(self._slot)) is not None:
            self.log_path = running.engine.log_path
            return running
        if self._served is not None:
            self._served.check_health()  # one that unloaded itself comes back; one that died says why
            return self._served
        return self.start_engine()

    def running_llm(self) -> ks.LLM | None:
        """Return the engine of this notebook, None if none runs yet or any more. Never waits for a start."""
        return ks.LLM.running(self._slot, wait=False)

    def known_llm(self) -> ks.LLM:
        """Return the engine of this notebook, also one that has died: what it left can still be looked at."""
        return self.running_llm() or self._served or self.start_engine()

    def keep_engine(self) -> ks.LLM | None:
        """Hold the engine that runs, or else the one that `%serve` started and that died; None if there is neither."""
        self._served = self.running_llm() or self._served
        return self._served

    def forget_engine(self) -> ks.LLM | None:
        """Let go of what `%serve` started. Returns it."""
        served, self._served = self._served, None
        self._slot = "default"
        return served

    def new_request_id(self) -> str:
        """Return r1, r2, ...: what `%abort` and the plots call a request."""
        return f"r{next(self._numbers)}"

    def remember(self, run: GenerationRun) -> None:
        """Keep a run so that it can be listed, shown again and aborted. The oldest that ended are forgotten."""
        self.runs[run.result.request_id] = run
        ended = [request_id for request_id, known in self.runs.items() if known.result.finished]
        for request_id in ended[: max(0, len(ended) - _MAX_ENDED_RUNS)]:
            del self.runs[request_id]

    def close(self) -> None:
        """End what runs in the background and the refreshing. The engine is left to its owner."""
        if self.dashboard is not None:
            self.dashboard.close()  # leaves a picture, also when the kernel ends
        for run in self.runs.values():
            if not run.result.finished:
                run.stop()
        self.flusher.close()

    def _image_side(self) -> int:
        """How large a picture the engine of this notebook makes use of; 0 if none runs."""
        try:
            llm = self.running_llm()
            return 0 if llm is None else llm.engine.image_side
        except ks.KernelserveError:  # it ended just now
            return 0
