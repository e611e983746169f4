"""Ends the engine process once, by the polite way if there is time and by the hard way if there is not."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["ShutdownRequest", "ShutdownSwitch"]

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShutdownRequest:
    """Why and how to end. `drain_s` is the time that running requests still have."""

    reason: str
    drain_s: float = 0.0
    exit_code: int = 0
    code: str = ""


class ShutdownSwitch:
    """Thrown from any thread. The main loop is woken and ends by itself; if it has not done so `hard_exit_s` after
    the drain time, since it sits in a long native call, the process is ended under it.

    `last_words` and `clean_up` run before a hard exit. The first request is the one that counts.
    """

    def __init__(
        self,
        *,
        wake: Callable[[], None],
        last_words: Callable[[ShutdownRequest], None],
        clean_up: Callable[[], None],
        hard_exit_s: float = 1.0,
    ) -> None:
        self._wake = wake
        self._last_words = last_words
        self._clean_up = clean_up
        self._hard_exit_s = hard_exit_s
        self._lock = threading.Lock()
        self.request: ShutdownRequest | None = None

    def throw(self, request: ShutdownRequest) -> None:
        """Ask for the end of the process."""
        with self._lock:
            if self.request is not None:
                return
            self.request = request
        _LOGGER.info("The engine ends: %s", request.reason)
        timer = threading.Timer(request.drain_s + self._hard_exit_s, self._end_hard)
        timer.daemon = True
        timer.start()
        self._wake()

    def _end_hard(self) -> None:
        assert self.request is not None
        _LOGGER.warning("The main thread does not answer: the process is ended under it")
        try:
            self._last_words(self.request)
        finally:
            self._clean_up()
            os._exit(self.request.exit_code)
