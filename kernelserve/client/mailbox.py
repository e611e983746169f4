"""The one-slot mailbox between the client thread, which fills it, and the one consumer of a request."""

from __future__ import annotations

import threading

from kernelserve.client.wakeup import LoopWaker
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

    def __init__(self, *, delta: bool) -> None:
        self._delta = delta
        self._lock = threading.Lock()
        self._slot: RequestOutput | None = None
        self._error: Exception | None = None
        self._waker: LoopWaker | threading.Event | None = None

    def put(self, output: RequestOutput) -> None:
        """Add an output. Callable from any thread; never blocks."""
        with self._lock:
            if self._slot is None:
                self._slot = output
            else:
                self._slot.merge(output, delta=self._delta)
            waker = self._waker
        if waker is not None:
            waker.set()

    def fail(self, error: Exception) -> None:
        """End the stream with `error`."""
        with self._lock:
            self._error = error
            waker = self._waker
        if waker is not None:
            waker.set()

    async def get(self) -> RequestOutput:
        """Wait for the next output on the running event loop. Raises what `fail` was given."""
        while (output := self._take_or_arm(LoopWaker)) is None:
            waker = self._waker
            assert isinstance(waker, LoopWaker)
            try:
                await waker.wait()
            finally:
                self._waker = None
        return output

    def get_blocking(self) -> RequestOutput:
        """Wait for the next output in a plain thread. Raises what `fail` was given, and KeyboardInterrupt."""
        while (output := self._take_or_arm(threading.Event)) is None:
            waker = self._waker
            assert isinstance(waker, threading.Event)
            try:
                waker.wait()
            finally:
                self._waker = None
        return output

    def _take_or_arm(
        self, make_waker: type[LoopWaker] | type[threading.Event]
    ) -> RequestOutput | None:
        """Take the slot; if it is empty, leave a waker under the same lock so that no put is missed."""
        with self._lock:
            if (output := self._slot) is not None:
                self._slot = None
                return output
            if self._error is not None:
                raise self._error
            self._waker = make_waker()
            return None
