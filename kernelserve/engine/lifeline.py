"""Notices that the process that owns the engine is gone, however it ended."""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable

__all__ = ["Lifeline"]

_LOGGER = logging.getLogger(__name__)
_POLL_S = 1.0


class Lifeline:
    """A thread at the read end of a pipe whose write end only the owner holds.

    The pipe closes within milliseconds of any death of the owner. Should a fork of the owner keep it open, the parent
    pid tells: an orphan gets a new parent.
    """

    def __init__(self, fd: int, *, on_lost: Callable[[str], None]) -> None:
        self._fd = fd
        self._on_lost = on_lost
        self._parent = os.getppid()
        self._thread = threading.Thread(target=self._run, name="lifeline", daemon=True)

    def start(self) -> None:
        """Watch until the owner is gone."""
        self._thread.start()

    def _run(self) -> None:
        while True:
            readable, _, _ = select.select([self._fd], [], [], _POLL_S)
            if readable and not os.read(self._fd, 4096):
                self._on_lost("the process that owns the engine has closed its lifeline")
                return
            if os.getppid() != self._parent:
                self._on_lost(f"the process that owns the engine (pid {self._parent}) has ended")
                return
