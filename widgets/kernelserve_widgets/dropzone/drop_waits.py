"""Cells that wait for a picture."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager

import kernelserve as ks
from kernelserve_widgets.dropzone.picture import Picture
from kernelserve_widgets.waiting import wait_blocking, wait_for

__all__ = ["DropWaits"]

_GREETING_S = 10.0
"""A front end that shows a widget says so within a second; a slow page takes longer."""
_Arrival = Future[list[Picture]]


class DropWaits:
    """Who waits for the next picture, and who for all pictures of the next drop. Thread-safe.

    Nobody waits for long where no page shows the zone: then nothing can come.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._greeted: Future[None] = Future()
        self._for_one: list[_Arrival] = []
        self._for_all: list[_Arrival] = []

    def greet(self) -> None:
        """A page shows the zone."""
        with self._lock:
            if not self._greeted.done():
                self._greeted.set_result(None)

    def landed(self, picture: Picture) -> None:
        """Let go on who waits for a picture."""
        self._settle(self._for_one, [picture])

    def drop_ended(self, pictures: Sequence[Picture]) -> None:
        """Let go on who waits for a drop."""
        self._settle(self._for_all, list(pictures))

    def end(self) -> None:
        """End every wait, as an interrupt does."""
        with self._lock:
            for arrival in (*self._for_one, *self._for_all):
                arrival.cancel()

    async def one(self) -> Picture:
        """Wait for a picture. Raises InvalidRequestError if nobody can drop one, KeyboardInterrupt after `end`."""
        with self._entered(self._for_one) as arrival:
            return (await self._wait(arrival))[0]

    async def all(self) -> list[Picture]:
        """Wait for the pictures of a drop. Raises as `one`."""
        with self._entered(self._for_all) as arrival:
            return await self._wait(arrival)

    def all_blocking(self) -> list[Picture]:
        """The same where a cell cannot await: for kernels that hear widgets in a thread of their own."""
        with self._entered(self._for_all) as arrival:
            if not wait_blocking(self._greeted, _GREETING_S):
                raise _nobody()
            wait_blocking(arrival)
            return _taken(arrival)

    async def _wait(self, arrival: _Arrival) -> list[Picture]:
        try:
            async with asyncio.timeout(_GREETING_S):
                await wait_for(self._greeted)
        except TimeoutError:
            raise _nobody() from None
        await wait_for(arrival)
        return _taken(arrival)

    @contextmanager
    def _entered(self, waiting: list[_Arrival]) -> Iterator[_Arrival]:
        arrival: _Arrival = Future()
        with self._lock:
            waiting.append(arrival)
        try:
            yield arrival
        finally:
            with self._lock:
                waiting.remove(arrival)

    def _settle(self, waiting: list[_Arrival], pictures: list[Picture]) -> None:
        with self._lock:
            for arrival in waiting:
                if not arrival.done():
                    arrival.set_result(pictures)


def _nobody() -> ks.InvalidRequestError:
    return ks.InvalidRequestError(
        f"no page answered in {_GREETING_S:g} s, so nobody can drop a picture now: open the notebook, drop it, and "
        "run the cell again. Without a browser use --image PATH, a URL or a variable"
    )


def _taken(arrival: _Arrival) -> list[Picture]:
    if arrival.cancelled():
        raise KeyboardInterrupt("the wait for a picture was ended")
    return arrival.result()
