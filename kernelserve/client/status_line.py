"""One line that says what a starting engine does, written over in place."""

from __future__ import annotations

from typing import TextIO

from kernelserve.protocol import EngineReady, EngineStatus

__all__ = ["StatusLine"]


class StatusLine:
    """Writes to a terminal or a cell; never asks the stream for a file descriptor.

    On anything that is not a terminal only the last line is written, so that logs stay readable.
    """

    def __init__(self, stream: TextIO, *, enabled: bool) -> None:
        self._stream = stream
        self._enabled = enabled
        self._in_place = enabled and bool(getattr(stream, "isatty", bool)())
        self._width = 0

    def show(self, status: EngineStatus) -> None:
        """Show a phase and the seconds since the start."""
        if self._in_place:
            done = "" if status.done is None else f" {status.done:.0%}"
            self._write(f"kernelserve: {status.phase}{done} ... {status.seconds:.1f} s")

    def finish(self, ready: EngineReady) -> None:
        """Leave one line about the engine."""
        if self._enabled:
            self._write(ready.describe())
            self._stream.write("\n")
            self._stream.flush()

    def clear(self) -> None:
        """Wipe the line: an error will be shown instead."""
        if self._in_place and self._width:
            self._write("")
            self._stream.write("\r")

    def _write(self, text: str) -> None:
        self._stream.write(("\r" if self._in_place else "") + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)
