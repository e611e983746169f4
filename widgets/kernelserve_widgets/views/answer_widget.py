"""The comm of one answer: numbers what is sent, and can say all of it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import traitlets

from kernelserve_widgets.views.quiet_widget import QuietWidget
from kernelserve_widgets.views.static_files import ended_script

__all__ = ["AnswerWidget", "Payload"]

Payload = str | list[list[Any]]
"""A piece of an answer: its text, or its tokens as [text, probability, [[text, probability], ...]]."""


class AnswerWidget(QuietWidget):
    """Sends pieces of an answer to static/stream.js, which says what the messages are.

        seq 1  2  3  4            each piece has the next number
            d  d  |  d            a snapshot repeats what was sent up to its number, so views can join at any time:
                  s=2, full       another page, a reloaded one, one that missed a message

    The text is no trait, so it is neither sent again nor saved. `state`, the only trait, holds the options of the view;
    when a page asks for it, it reads as a snapshot too.
    """

    state = traitlets.Any(None, allow_none=True).tag(
        sync=True, to_json=lambda _, widget: widget.current_state()
    )

    def __init__(
        self,
        stop: Callable[[], None],
        everything: Callable[[], list[Payload]],
        *,
        answers: int,
        stop_hint: str,
        show_tokens: bool,
    ) -> None:
        self._options = {"answers": answers, "hint": stop_hint, "tokens": show_tokens}
        self._stop = stop
        self._everything = everything
        self._seq = 0
        self.counters = ""
        """As sent last."""
        self._end: str | None = None
        self._fresh = True
        super().__init__("stream")
        self._fresh = False

    def add(self, pieces: list[tuple[int, Payload]], counters: str | None) -> None:
        """Send what is new of each answer, and the counters if they are given."""
        with self.lock:
            message = self._numbered()
            if len(pieces) == 1 and pieces[0][0] == 0:
                message["d"] = pieces[0][1]
            else:
                message["a"] = pieces
            self._send_with(message, counters)

    def count(self, counters: str) -> None:
        """Send only counters."""
        with self.lock:
            self._send_with({"n": self._seq}, counters)

    def end(self, summary: str, whole: list[Payload] | None = None) -> None:
        """Say that nothing more comes; `whole` replaces all that was sent."""
        with self.lock:
            self._end = summary
            message = self._numbered()
            if whole is not None:
                message["full"] = whole
            self.tell(message | {"end": summary})

    def keep(self, whole: list[Payload]) -> None:
        """Answer later questions with this, and let go of everything that ran, and of the script that streams."""
        with self.lock:
            self._everything = lambda: whole
            self._stop = _do_nothing
            self.become(ended_script())

    def current_state(self) -> dict[str, Any] | None:
        """Return what a page needs that hears of this widget now; None once it is closed."""
        with self.lock:
            if self.closed:
                return None
            return self._options | ({"fresh": True} if self._fresh else self.snapshot())

    def snapshot(self) -> dict[str, Any]:
        """Return the message that says everything so far."""
        with self.lock:
            message = {"s": self._seq, "full": self._everything(), "c": self.counters}
            return message if self._end is None else message | {"end": self._end}

    def handle(self, message: dict[str, Any]) -> None:
        """Stop, or send a snapshot."""
        match message.get("kind"):
            case "stop":
                self._stop()
                self.tell({"stopping": True})
            case "sync":
                with self.lock:
                    self.tell(self.snapshot())

    def _numbered(self) -> dict[str, Any]:
        self._seq += 1
        return {"s": self._seq}

    def _send_with(self, message: dict[str, Any], counters: str | None) -> None:
        if counters is not None:
            self.counters = counters
            message["c"] = counters
        self.tell(message)


def _do_nothing() -> None:
    """Nothing is left to stop."""
