"""Tells each client once what became of the start, and until then how far it is."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import msgspec

from kernelserve.engine.output_thread import OutputThread
from kernelserve.protocol import EngineFailure, EngineReady, EngineStatus

__all__ = ["Reception"]

_LOGGER = logging.getLogger(__name__)


class Reception:
    """Between the main thread, which loads, and the input thread, which lets clients in.

    A client that comes in while the engine loads hears of the progress and then the outcome; one that comes later
    hears the outcome at once. The lock makes it exactly one outcome for each.
    """

    def __init__(self, output: OutputThread, clock: Callable[[], float]) -> None:
        self._output = output
        self._clock = clock
        self._began = clock()
        self._lock = threading.Lock()
        self._somebody_was_told = threading.Event()
        self._waiting: list[int] = []
        """Clients that were let in while the engine loads."""
        self._outcome: EngineReady | EngineFailure | None = None
        self._phase = "import"
        self._done: float | None = None
        self._tokenizer_dir = ""

    @property
    def phase(self) -> str:
        """What the engine is doing, or was doing when it became ready or failed."""
        return self._phase

    @property
    def is_loading(self) -> bool:
        """Whether there is no outcome yet."""
        return self._outcome is None

    def report_progress(self, phase: str, done: float | None, tokenizer_dir: str = "") -> None:
        """Note how far the start is. Clients hear of news at once, of the rest by `repeat_status`."""
        with self._lock:
            is_new = phase != self._phase
            if is_new:
                _LOGGER.info("Phase: %s", phase)
            self._phase, self._done = phase, done
            if tokenizer_dir not in ("", self._tokenizer_dir):
                self._tokenizer_dir, is_new = tokenizer_dir, True
            if is_new:
                self._output.broadcast(self._status())

    def repeat_status(self) -> None:
        """Show the clients of a loading engine that it lives."""
        with self._lock:
            if self._outcome is None:
                self._output.broadcast(self._status())

    def conclude(self, outcome: EngineReady | EngineFailure) -> None:
        """Tell everybody, now and from now on."""
        with self._lock:
            self._outcome = outcome
            for index in self._waiting:
                self._tell(index, outcome)

    def welcome(self, index: int) -> None:
        """Greet a client to whom the output thread has a way."""
        with self._lock:
            if self._outcome is None:
                self._waiting.append(index)
                self._output.send(index, self._status())
            else:
                self._tell(index, self._outcome)

    def wait_until_told(self, timeout: float) -> None:
        """Return when a client was told of the outcome, or after `timeout` seconds."""
        self._somebody_was_told.wait(timeout)

    def _tell(self, index: int, outcome: EngineReady | EngineFailure) -> None:
        if isinstance(outcome, EngineReady):
            outcome = msgspec.structs.replace(outcome, client_index=index)
        self._output.send(index, outcome)
        self._somebody_was_told.set()

    def _status(self) -> EngineStatus:
        seconds = self._clock() - self._began
        return EngineStatus(self._phase, seconds, self._done, self._tokenizer_dir)
