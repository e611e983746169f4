"""Waiting in a cell for what another thread completes, so that an interrupt is always heard."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

__all__ = ["wait_blocking", "wait_for"]

_TICK_S = 0.1
"""ipykernel delivers an interrupt to an awaiting cell only when its loop turns, so it turns at least so often."""


async def wait_for(future: Future[Any]) -> None:
    """Await the end of a future on an asyncio loop. A cancelled wait leaves the future alone; errors stay in it."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def ring(_: Future[Any]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(ended.set)

    future.add_done_callback(ring)
    while not future.done():
        try:
            async with asyncio.timeout(_TICK_S):
                await ended.wait()
        except TimeoutError:
            continue


def wait_blocking(future: Future[Any], timeout: float | None = None) -> bool:
    """Block until a future has ended; False if it takes longer. Raises KeyboardInterrupt at once."""
    ended = threading.Event()
    future.add_done_callback(lambda _: ended.set())
    return ended.wait(timeout)
