"""Awaiting what another thread completes, on any event loop."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TypeVar

import anyio

from kernelserve.client.loop_bell import LoopBells

__all__ = ["wait_for_future"]

_T = TypeVar("_T")


async def wait_for_future(future: Future[_T]) -> _T:
    """Await a future that another thread completes. Cancelling the wait cancels the future."""
    bell, done = LoopBells().here(), anyio.Event()
    future.add_done_callback(lambda _: bell.ring(done))
    try:
        await bell.wait(done)
    except BaseException:
        future.cancel()
        raise
    return future.result()
