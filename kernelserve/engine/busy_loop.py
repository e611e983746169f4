"""The main thread's loop: input in, one step, outputs out."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable

from kernelserve.core.request import Request
from kernelserve.engine.client_table import ClientTable
from kernelserve.engine.engine_core import EngineCore, StepOutputs
from kernelserve.engine.input_thread import InputItem
from kernelserve.engine.output_thread import OutputThread
from kernelserve.engine.shutdown_switch import ShutdownRequest
from kernelserve.engine.utilities import EngineUtilities
from kernelserve.protocol import (
    EngineCoreOutput,
    EngineCoreOutputs,
    FinishReason,
    RequestType,
    UtilityReply,
)

__all__ = ["BusyLoop"]

_LOGGER = logging.getLogger(__name__)
_REST_S = 0.25
"""Without work for so long, the loop checks that nothing was left behind."""
_STALL_S = 0.001


class BusyLoop:
    """Runs until there is a shutdown request, then drains. Whatever it raises is fatal to the engine."""

    def __init__(
        self,
        core: EngineCore,
        items: queue.SimpleQueue[InputItem | None],
        output: OutputThread,
        clients: ClientTable,
        shutdown_request: Callable[[], ShutdownRequest | None],
    ) -> None:
        self._core = core
        self._items = items
        self._output = output
        self._clients = clients
        self._shutdown_request = shutdown_request
        self._utilities = EngineUtilities(core, clients)
        self._draining = False
        self._unchecked = False
        self.idle_since: float | None = core.clock()
        """When the last request ended, None while there are some. Any thread may read it."""

    def run(self) -> ShutdownRequest:
        """Serve until the process is asked to end; return that request when nothing runs any more."""
        while (request := self._shutdown_request()) is None:
            self._take_input(wait=not self._core.scheduler.has_requests())
            self._step()
        self._drain(request)
        return request

    def _take_input(self, *, wait: bool) -> None:
        try:
            item = self._wait() if wait else self._items.get_nowait()
            while True:
                if item is not None:
                    self._handle(item)
                item = self._items.get_nowait()
        except queue.Empty:
            pass

    def _wait(self) -> InputItem | None:
        if self._unchecked:
            try:
                return self._items.get(timeout=_REST_S)
            except queue.Empty:
                self._unchecked = False
                self._core.scheduler.check_integrity()
        return self._items.get()

    def _handle(self, item: InputItem) -> None:
        kind, client_index, payload = item
        match kind:
            case RequestType.ADD:
                self._add(client_index, payload)
            case RequestType.ABORT:
                self._core.abort(payload)
                if not self._core.scheduler.has_unfinished_requests():
                    self._core.discard_eager_aborts()
            case RequestType.UTILITY:
                reply = UtilityReply(self._utilities.call(payload))
                self._output.send(client_index, reply)
            case RequestType.BYE:
                self._core.abort_client(client_index)

    def _add(self, client_index: int, request: Request) -> None:
        if self._draining:
            failed: EngineCoreOutput | None = EngineCoreOutput(
                request.request_id, [], finish_reason=FinishReason.ABORT
            )
        else:
            failed = self._core.add_request(request)
        if failed is not None:
            self._output.send(client_index, self._package([failed]))

    def _step(self) -> None:
        scheduler = self._core.scheduler
        if not scheduler.has_requests():
            return
        self.idle_since = None
        self._send(self._core.step())
        if scheduler.has_requests():
            if self._core.last_record is None:
                time.sleep(_STALL_S)
            return
        self.idle_since = self._core.clock()
        self._unchecked = True
        # Gauges reach zero without another step.
        self._output.broadcast(self._package([]))

    def _send(self, outputs: StepOutputs) -> None:
        """Send each client its outputs; the step itself is news for all of them."""
        record = self._core.last_record
        if record is None and not outputs:
            return
        for index in self._clients.indices:
            message = self._package(outputs.get(index, []))
            message.step_record = record
            self._output.send(index, message)

    def _package(self, outputs: list[EngineCoreOutput]) -> EngineCoreOutputs:
        stats = self._core.scheduler.stats()
        return EngineCoreOutputs(outputs, scheduler_stats=stats, timestamp=self._core.clock())

    def _drain(self, request: ShutdownRequest) -> None:
        """Let requests run for the time they still have, then end them."""
        self._draining = True
        deadline = self._core.clock() + request.drain_s
        while self._core.scheduler.has_unfinished_requests() and self._core.clock() < deadline:
            self._take_input(wait=False)
            self._step()
        self._take_input(wait=False)
        for index, outputs in self._core.abort_all().items():
            self._output.send(index, self._package(outputs))
