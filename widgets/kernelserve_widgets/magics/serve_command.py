"""What one %serve does: find or start the engine, with a status line that is updated in place."""

from __future__ import annotations

import time
from typing import Any

import kernelserve as ks
from kernelserve.protocol import EngineStatus
from kernelserve_widgets.magics.serve_options import engine_options, serve_parser
from kernelserve_widgets.notebook_session import NotebookSession
from kernelserve_widgets.shell import choose_ui
from kernelserve_widgets.views.cell_display import CellDisplay

__all__ = ["ServeCommand"]

_MIN_INTERVAL_S = 0.2


class ServeCommand:
    """One execution of %serve. Without a model and options it takes the engine that the notebook uses already."""

    def __init__(
        self, session: NotebookSession, shell: Any, defaults: dict[str, Any], line: str
    ) -> None:
        self._session = session
        self._shell = shell
        self._options = serve_parser().parse_line(line)
        self._given = engine_options(self._options)
        self._defaults = defaults

    def run(self) -> ks.LLM:
        """Return the engine. Raises an EngineStartError or InvalidConfigError."""
        if self._options.model is None and not self._given:
            running = self._session.running_llm()
            if running is not None:
                self._status_line().finish(running.engine.describe())
                return running
        settings = self._defaults | self._given
        model = self._options.model or settings["model"]
        settings.pop("model")
        line = self._status_line()
        try:
            llm = ks.LLM(model, on_status=line.show, show_progress=False, **settings)
        except BaseException as error:
            line.clear()
            if isinstance(error, ks.EngineStartError):
                self._session.log_path = error.log_path or self._session.log_path
            raise
        line.finish(llm.engine.describe())
        self._session.serve(llm, settings.get("name", "default"))
        return llm

    def _status_line(self) -> _StatusDisplay:
        return _StatusDisplay(in_place=choose_ui(self._shell) in ("widget", "display"))


class _StatusDisplay:
    """One line of output that is replaced as the start goes on; elsewhere only its last state is printed."""

    def __init__(self, *, in_place: bool) -> None:
        self._place = CellDisplay() if in_place else None
        self._shown_at = 0.0

    def show(self, status: EngineStatus) -> None:
        now = time.monotonic()
        if self._place is not None and now - self._shown_at >= _MIN_INTERVAL_S:
            done = "" if status.done is None else f" {status.done:.0%}"
            text = f"starting: {status.phase}{done} · {status.seconds:.1f} s"
            self._place.replace({"text/plain": text})
            self._shown_at = now

    def finish(self, text: str) -> None:
        if self._place is None:
            print(text)
        else:
            self._place.replace({"text/plain": text})

    def clear(self) -> None:
        """An error will be shown instead."""
        if self._place is not None and self._shown_at:
            self._place.replace({"text/plain": "the engine did not start"})
