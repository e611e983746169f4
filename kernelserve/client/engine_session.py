"""One engine as this process uses it: requests in, outputs to their sinks, until it is closed or dies."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

import anyio

from kernelserve.client.client_thread import ClientThread
from kernelserve.client.core_client import CoreClient
from kernelserve.client.early_tokenizer import EarlyTokenizer
from kernelserve.client.input_processor import InputProcessor
from kernelserve.client.loop_bell import LoopBells
from kernelserve.client.output_processor import OutputProcessor, OutputSink
from kernelserve.client.processed_request import ProcessedRequest
from kernelserve.errors import EngineDeadError, EngineError
from kernelserve.protocol import EngineReady, SchedulerStats, StepRecord

__all__ = ["EngineSession"]

_Command = Callable[[], Awaitable[None]]


class OpenCore(Protocol):
    """Makes the connection: launches an engine or attaches to one."""

    def __call__(self) -> CoreClient: ...


class EngineSession:
    """Owns the connection to one engine. Made by EngineSessions; its methods may be called from any thread.

        caller threads             client thread
        submit, abort, call  --->  commands in order  --->  CoreClient  ---> engine
        sinks  <---  OutputProcessor  <---  _pump_outputs  <---  CoreClient  <---

    Commands are executed in the order in which they were posted, so an abort never overtakes its request.
    """

    def __init__(self, thread: ClientThread, open_core: OpenCore, *, num_step_records: int) -> None:
        self._thread = thread
        self._open_core = open_core
        self._scope: anyio.CancelScope | None = None
        self._send_command, self._commands = anyio.create_memory_object_stream[_Command](math.inf)
        self._output_processor: OutputProcessor | None = None
        self._core: CoreClient | None = None
        self._error: EngineError | None = None
        self.started: Future[EngineReady] = Future()
        self.ended: Future[None] = Future()
        self._early_tokenizer = EarlyTokenizer()
        self.bells = LoopBells()
        self.latest_stats = SchedulerStats()
        self._step_records: deque[StepRecord] = deque(maxlen=num_step_records)

    @property
    def error(self) -> EngineError | None:
        """Why this session has ended, None while it lives."""
        return self._error

    @property
    def ready(self) -> EngineReady:
        """What the engine said of itself. Waits for the start; raises what went wrong with it."""
        return self.started.result()

    def when_started(self) -> Future[EngineReady]:
        """Return a future of the start for one waiter, who may cancel it without disturbing the others."""
        view: Future[EngineReady] = Future()
        view.set_running_or_notify_cancel()

        def copy(done: Future[EngineReady]) -> None:
            if (error := done.exception()) is not None:
                view.set_exception(error)
            else:
                view.set_result(done.result())

        self.started.add_done_callback(copy)
        return view

    @property
    def num_unfinished_requests(self) -> int:
        """Requests whose last output has not come yet."""
        processor = self._output_processor
        return processor.num_unfinished_requests if processor else 0

    def recent_step_records(self, since_step: int = 0) -> list[StepRecord]:
        """Return the step records that have come, from that step on."""
        recent: list[StepRecord] = []
        # Newest first, so that a caller who comes often pays only for what is new. The copy is one atomic operation.
        for record in reversed(self._step_records.copy()):
            if record.step < since_step:
                break
            recent.append(record)
        recent.reverse()
        return recent

    def submit(self, requests: Sequence[tuple[ProcessedRequest, OutputSink]]) -> None:
        """Register the requests, then send them. A session that has ended fails the sinks instead."""
        self._thread.post(self._submit, requests)

    def abort(self, request_ids: Sequence[str]) -> None:
        """End requests by the caller's or the internal id. Unknown and finished ids are ignored."""
        self._thread.post(self._abort, request_ids)

    def call(self, method: str, *args: Any) -> Future[Any]:
        """Call a utility of the engine."""
        return self._thread.start(self._call, method, *args)

    def close(self, reason: str) -> Future[None]:
        """End the session; requests that still run are failed with `reason`. Returns `ended`."""
        return self.close_with(EngineDeadError(reason))

    def close_with(self, error: EngineDeadError) -> Future[None]:
        """The same with an error of the caller's choice."""
        self._thread.post(self._close, error)
        return self.ended

    async def run(self) -> None:
        """Live in the client thread: connect, serve, clean up. Never raises; see `started` and `error`."""
        error: EngineError = EngineDeadError("the connection to the engine has ended")
        try:
            with anyio.CancelScope() as self._scope:
                if self._error is not None:  # closed before it began
                    return
                client = self._open_core()
                client.on_tokenizer = self._early_tokenizer.begin
                async with client as core:
                    self._become_ready(core)
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._execute_commands)
                        try:
                            await self._pump_outputs(core)
                        except EngineError as dead:
                            self._fail(dead)  # at once: parting from the engine may take seconds
                            raise
        except EngineError as engine_error:
            error = engine_error
        except BaseExceptionGroup as group:
            error = _single_error(group)
        except Exception as unexpected:
            error = EngineDeadError(f"the client of the engine failed: {unexpected!r}")
            error.__cause__ = unexpected
        finally:
            self._end(error)

    def _become_ready(self, core: CoreClient) -> None:
        ready = core.ready
        folder = ready.tokenizer_dir
        tokenizer = self._early_tokenizer.get(folder) if folder else None
        self.input_processor = InputProcessor(ready, tokenizer)
        self.tokenizer = tokenizer
        self._output_processor = OutputProcessor(tokenizer)
        self._core = core
        self.input_processor.prepare()
        self.started.set_result(ready)

    async def _execute_commands(self) -> None:
        async for command in self._commands:
            await command()

    async def _pump_outputs(self, core: CoreClient) -> None:
        assert self._output_processor is not None
        while True:
            outputs = await core.receive()
            if outputs.scheduler_stats is not None:
                self.latest_stats = outputs.scheduler_stats
            if outputs.step_record is not None:
                self._step_records.append(outputs.step_record)
            stopped = self._output_processor.process_outputs(outputs, time.monotonic())
            if stopped:
                await core.abort(stopped)

    def _submit(self, requests: Sequence[tuple[ProcessedRequest, OutputSink]]) -> None:
        core, processor = self._core, self._output_processor
        if self._error is not None or core is None or processor is None:
            for _, sink in requests:
                sink.fail(self._error or EngineDeadError("the engine is not ready yet"))
            return
        now = time.monotonic()
        for processed, sink in requests:
            processor.add_request(processed, sink, now)
            for request in processed.requests:
                self._send_command.send_nowait(partial(core.add_request, request))

    def _abort(self, request_ids: Sequence[str]) -> None:
        core, processor = self._core, self._output_processor
        if self._error is None and core is not None and processor is not None:
            ids = processor.abort_requests(request_ids, time.monotonic())
            if ids:
                self._send_command.send_nowait(partial(core.abort, ids))

    async def _call(self, method: str, *args: Any) -> Any:
        if self._error is not None:
            raise self._error
        assert self._core is not None
        return await self._core.call_utility(method, *args)

    def _close(self, error: EngineError) -> None:
        self._fail(error)
        if self._scope is not None:
            self._scope.cancel()

    def _fail(self, error: EngineError) -> None:
        """Tell everybody who waits. The first error is the one that counts."""
        self._error = self._error or error
        self.latest_stats = SchedulerStats()
        if self._output_processor is not None:
            self._output_processor.fail_all(self._error)

    def _end(self, error: EngineError) -> None:
        self._fail(error)
        self._core = None
        self._send_command.close()
        self._commands.close()
        if not self.started.done():
            self.started.set_exception(self._error or error)
        elif not self.started.exception():
            self.input_processor.close()
        self.ended.set_result(None)


def _single_error(group: BaseExceptionGroup[BaseException]) -> EngineError:
    """Out of what several tasks raised, the engine's own word."""
    engine_errors, others = group.split(EngineError)
    leaf: BaseException = engine_errors or others or group
    while isinstance(leaf, BaseExceptionGroup):
        leaf = leaf.exceptions[0]
    if isinstance(leaf, EngineError):
        return leaf
    error = EngineDeadError(f"the client of the engine failed: {leaf!r}")
    error.__cause__ = leaf
    return error
