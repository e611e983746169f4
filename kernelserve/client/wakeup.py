"""Waking a task of any event loop (asyncio or trio) from another thread, without ever blocking that thread."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import Future
from typing import Any, TypeVar

import anyio
from anyio.lowlevel import current_token

__all__ = ["LoopWaker", "wait_for_future"]

_T = TypeVar("_T")

TICK_S = 0.1
"""ipykernel delivers an interrupt to an awaiting cell only when its loop turns, so no wait is longer than this."""


class LoopWaker:
    """An event that belongs to the loop that made it and can be set from any thread."""

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._loop: Any = current_token().native_token

    def set(self) -> None:
        """Wake the waiter soon. Does nothing if its loop has ended meanwhile."""
        with contextlib.suppress(RuntimeError):
            if isinstance(self._loop, asyncio.AbstractEventLoop):
                self._loop.call_soon_threadsafe(self._event.set)
            else:  # a TrioToken
                self._loop.run_sync_soon(self._event.set)

    async def wait(self) -> None:
        """Return once set."""
        while not self._event.is_set():
            with anyio.move_on_after(TICK_S):
                await self._event.wait()


async def wait_for_future(future: Future[_T]) -> _T:
    """Await a future that another thread completes. Cancelling the wait cancels the future."""
    waker = LoopWaker()
    future.add_done_callback(lambda _: waker.set())
    try:
        await waker.wait()
    except BaseException:
        future.cancel()
        raise
    return future.result()
