"""The live view of an answer in a terminal: the text as it comes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from kernelserve.outputs import CompletionOutput, RequestOutput
from kernelserve_widgets.views.static_output import ending_note

if TYPE_CHECKING:
    from kernelserve_widgets.result import Result

__all__ = ["PlainView"]


class PlainView:
    """Writes the first answer while it grows and the others, if there are more, one after the other at the end.

    Writes to what `sys.stdout` was when the cell began, so a redirected cell gets its own text.
    """

    def __init__(
        self,
        *,
        num_answers: int,
        stop: Callable[[], None],  # noqa: ARG002 - Ctrl-C stops it
        stop_hint: str,  # noqa: ARG002
        show_tokens: bool,  # noqa: ARG002 - a terminal shows the text alone
        snapshot: Callable[[], list[CompletionOutput]],  # noqa: ARG002
    ) -> None:
        self._num_answers = num_answers
        self._written = 0
        self._stream = sys.stdout

    def open(self) -> None:
        """Begin the first answer."""
        self._stream = sys.stdout
        if self._num_answers > 1:
            self._write("[0]\n")

    def update(self, delta: RequestOutput, counters: str) -> None:  # noqa: ARG002
        """Write what is new of the first answer."""
        for output in delta.outputs:
            if output.index == 0 and output.text:
                self._written += len(output.text)
                self._write(output.text)

    def heartbeat(self, counters: str) -> None:
        """Nothing is shown of the counters: they would stand between the words."""

    def finish(self, result: Result) -> None:
        """Write what is missing, the other answers and, if it did not end by itself, how it ended."""
        first, *others = result.texts
        self._write(first[self._written :])
        if not first.endswith("\n"):
            self._write("\n")
        for index, text in enumerate(others, start=1):
            self._write(f"\n[{index}]\n{text}\n")
        if note := ending_note(result):
            self._write(f"{note}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
