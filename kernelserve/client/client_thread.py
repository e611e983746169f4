"""The one thread of a notebook kernel in which all client work happens: sockets, detokenizing, heartbeats."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from anyio.from_thread import start_blocking_portal

from kernelserve.errors import EngineDeadError

__all__ = ["ClientThread"]

_T = TypeVar("_T")


class ClientThread:
    """A daemon thread with an event loop of its own, so that neither a blocked cell nor a second loop matters.

    It never outlives the interpreter, and a forked child finds out that it has none.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._context = start_blocking_portal("asyncio", name="kernelserve-client")
        self._portal = self._context.__enter__()
        self._loop = self._portal.call(_running_loop)

    def post(self, function: Callable[..., object], *args: object) -> None:
        """Run a plain function in the thread soon. Calls run in the order in which they were posted."""
        self._check_process()
        self._loop.call_soon_threadsafe(function, *args)

    def start(self, function: Callable[..., Awaitable[_T]], *args: Any) -> Future[_T]:
        """Run a coroutine function as a task of the thread."""
        self._check_process()
        return self._portal.start_task_soon(function, *args)

    def stop(self) -> None:
        """End the thread after its tasks have ended."""
        self._check_process()
        self._context.__exit__(None, None, None)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise EngineDeadError(
                f"this process (pid {os.getpid()}) was forked from the one (pid {self._pid}) that started the engine: "
                "make a new LLM here"
            )


async def _running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()
