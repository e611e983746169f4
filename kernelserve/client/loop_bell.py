"""Wakes the tasks of one event loop (asyncio or trio) from another thread, many at a time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from typing import Any

import anyio
from anyio.lowlevel import current_token

__all__ = ["LoopBell", "LoopBells"]

TICK_S = 0.1
"""ipykernel delivers an interrupt to an awaiting cell only when its loop turns, so it turns at least so often."""


class LoopBell:
    """One bell for all the mailboxes that are read in a loop.

        client thread   ring(a) ring(b) ring(c)              ring(a)
        loop                                     _wake: a b c          _wake: a

    However many rings come before the loop gets to it, it is called once; a call from another thread is a system
    call, which for each token of each stream would cost more than the token. Rings never block.
    """

    def __init__(self, loop: Any) -> None:
        # The loop owns what waits in it, not the other way round.
        self._loop = weakref.ref(loop)
        self._is_asyncio = isinstance(loop, asyncio.AbstractEventLoop)
        self._lock = threading.Lock()
        self._rung: list[anyio.Event] = []
        self._num_waiting = 0
        self._ticking = False

    def ring(self, event: anyio.Event) -> None:
        """Set `event` soon, in its loop. Callable from any thread; does nothing if the loop has ended."""
        with self._lock:
            self._rung.append(event)
            if len(self._rung) > 1:
                return
        loop = self._loop()
        with contextlib.suppress(RuntimeError):
            if self._is_asyncio and loop is not None:
                loop.call_soon_threadsafe(self._wake)
            elif loop is not None:  # a TrioToken
                loop.run_sync_soon(self._wake)

    async def wait(self, event: anyio.Event) -> None:
        """Wait in the bell's own loop until `event` is set."""
        self._num_waiting += 1
        if self._is_asyncio and not self._ticking:
            self._tick()
        try:
            await event.wait()
        finally:
            self._num_waiting -= 1

    def _wake(self) -> None:
        with self._lock:
            rung, self._rung = self._rung, []
        for event in rung:
            event.set()

    def _tick(self) -> None:
        """Turn the loop again and again as long as somebody waits in it."""
        loop = self._loop()
        self._ticking = self._num_waiting > 0 and loop is not None
        if self._ticking and loop is not None:
            loop.call_later(TICK_S, self._tick)


class LoopBells:
    """The bells of all loops that read from one engine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bells: weakref.WeakKeyDictionary[Any, LoopBell] = weakref.WeakKeyDictionary()

    def here(self) -> LoopBell:
        """Return the bell of the running loop."""
        loop = current_token().native_token
        with self._lock:
            bell = self._bells.get(loop)
            if bell is None:
                bell = self._bells[loop] = LoopBell(loop)
            return bell
