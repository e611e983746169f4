"""The one-slot mailbox between the client thread, which fills it, and the one consumer of a request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import anyio

from kernelserve.client.loop_bell import LoopBells
from kernelserve.outputs import RequestOutput

__all__ = ["Mailbox"]


class Mailbox:
    """Holds at most one output; what arrives before it is taken is merged into it.

        client thread   put(a) put(b)            put(c)      fail(e)
        slot            [a]    [a+b]    []       [c]         [c], e
        consumer                     get -> a+b       get -> c    get raises e

    A slow consumer thus sees fewer and larger outputs, never lost or reordered ones, and memory stays bounded by the
    text itself. An error is raised only after what came before it was taken.
    """

    def __init__(self, *, delta: bool, bells: LoopBells | None = None) -> None:
        self._delta = delta
        self._bells = bells or LoopBells()
        self._lock = threading.Lock()
        self._slot: RequestOutput | None = None
        self._error: Exception | None = None
        self._wake: Callable[[], None] | None = None

    def put(self, output: RequestOutput) -> None:
        """Add an output. Callable from any thread; never blocks."""
        with self._lock:
            if self._slot is None:
                self._slot = output
            else:
                self._slot.merge(output, delta=self._delta)
            wake, self._wake = self._wake, None
        if wake is not None:
            wake()

    def fail(self, error: Exception) -> None:
        """End the stream with `error`."""
        with self._lock:
            self._error = error
            wake, self._wake = self._wake, None
        if wake is not None:
            wake()

    def take(self) -> RequestOutput | None:
        """Return what is there, None if nothing is. Raises what `fail` was given."""
        with self._lock:
            output, self._slot = self._slot, None
            if output is None and self._error is not None:
                raise self._error
            return output

    async def get(self) -> RequestOutput:
        """Wait for the next output on the running event loop. Raises what `fail` was given."""
        while (output := self.take()) is None:
            bell, arrival = self._bells.here(), anyio.Event()
            if self._arm(partial(bell.ring, arrival)):
                await bell.wait(arrival)
        return output

    def get_blocking(self) -> RequestOutput:
        """Wait for the next output in a plain thread. Raises what `fail` was given, and KeyboardInterrupt."""
        while (output := self.take()) is None:
            arrival = threading.Event()
            if self._arm(arrival.set):
                arrival.wait()
        return output

    def _arm(self, wake: Callable[[], None]) -> bool:
        """Have the next arrival call `wake`, unless something is there by now."""
        with self._lock:
            if self._slot is not None or self._error is not None:
                return False
            self._wake = wake
            return True
