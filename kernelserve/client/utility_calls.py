"""Utility calls whose answers have not come yet."""

from __future__ import annotations

import copy
from typing import Any

import anyio

from kernelserve.errors import EngineRequestError, KernelserveError
from kernelserve.protocol import UtilityOutput

__all__ = ["UtilityCalls"]


class _Call:
    def __init__(self) -> None:
        self.done = anyio.Event()
        self.output: UtilityOutput | None = None


class UtilityCalls:
    """Call id -> waiter. Ids begin at 1; 0 is the heartbeat's."""

    def __init__(self) -> None:
        self._calls: dict[int, _Call] = {}
        self._last_id = 0
        self._error: KernelserveError | None = None

    def begin(self) -> int:
        """Make room for an answer; return the id of the call."""
        self._last_id += 1
        self._calls[self._last_id] = _Call()
        return self._last_id

    async def wait(self, call_id: int) -> Any:
        """Return the answer. Raises EngineRequestError if the call failed in the engine."""
        call = self._calls[call_id]
        try:
            await call.done.wait()
        finally:
            del self._calls[call_id]
        if call.output is None:
            assert self._error is not None
            raise copy.copy(self._error)
        if call.output.failure is not None:
            raise EngineRequestError(call.output.failure)
        return call.output.result

    def complete(self, output: UtilityOutput) -> None:
        """Hand an answer to its waiter, if there still is one."""
        call = self._calls.get(output.call_id)
        if call is not None:
            call.output = output
            call.done.set()

    def fail_all(self, error: KernelserveError) -> None:
        """Raise `error` in every waiter."""
        self._error = error
        for call in self._calls.values():
            call.done.set()
