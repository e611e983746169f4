"""The connection of this process to one engine."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from kernelserve.client.engine_errors import crash_error, dead_error, start_error
from kernelserve.client.engine_opener import find_engine, open_engine
from kernelserve.client.engine_options import LaunchOptions
from kernelserve.client.engine_process import EngineProcess
from kernelserve.client.heartbeat import Heartbeat
from kernelserve.client.transport import ClientTransport
from kernelserve.client.utility_calls import UtilityCalls
from kernelserve.config import EngineConfig
from kernelserve.errors import EngineDeadError, EngineError, EngineStartError, ProtocolError
from kernelserve.multimodal.mirrored_cache import ImageSender
from kernelserve.multimodal.shared_images import SharedImageSender
from kernelserve.protocol import (
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineDead,
    EngineFailure,
    EngineMessage,
    EngineReady,
    EngineStatus,
    RequestType,
    UtilityReply,
    UtilityRequest,
)

__all__ = ["CoreClient"]

_LOGGER = logging.getLogger(__name__)
_BURST = 32
_HEARTBEAT_ID = 0
_LAST_MESSAGES_S = 0.2


class CoreClient:
    """Requests out, outputs in, with one answer to every way in which an engine can end.

        async with CoreClient.launch(config, options) as core:
            await core.add_request(request)
            outputs = await core.receive()

    Entering starts the engine, or finds it, and waits until it is ready; it raises an EngineStartError.
    Leaving ends an engine that lives for this process and lets go of any other.
    Death is noticed by the exit of the process, a hang by the heartbeat: a call that is answered by
    the engine's busy loop. Both raise EngineDeadError in `receive` and in all calls.
    For one event loop, asyncio or trio; one task at a time may be in `receive`.
    """

    def __init__(
        self,
        open_process: Callable[[], Awaitable[EngineProcess]],
        *,
        heartbeat_timeout: float,
        on_status: Callable[[EngineStatus], None] | None,
    ) -> None:
        self._open_process = open_process
        self._heartbeat = Heartbeat(
            heartbeat_timeout, send_ping=self._send_ping, on_silence=self._give_up
        )
        self._on_status = on_status
        self.on_tokenizer: Callable[[str], None] | None = None
        """Hears where the model's tokenizer is, perhaps long before the engine is ready."""
        self._resources = contextlib.AsyncExitStack()
        self._calls = UtilityCalls()
        self._arrival = anyio.Event()
        self._started = anyio.Event()
        self._outputs: deque[EngineCoreOutputs] = deque()
        self._error: EngineError | None = None
        self._ready: EngineReady | None = None
        self._phase = ""
        self._images: ImageSender | SharedImageSender = ImageSender(0)
        self._hung = False
        self._stop_wanted = False

    @classmethod
    def launch(
        cls,
        config: EngineConfig,
        options: LaunchOptions,
        *,
        on_status: Callable[[EngineStatus], None] | None = None,
    ) -> CoreClient:
        """Make a client of a new engine, or of the shared one that `options` names if that has the same settings."""

        async def open_process() -> EngineProcess:
            return await open_engine(config, options)

        return cls(open_process, heartbeat_timeout=options.heartbeat_timeout, on_status=on_status)

    @classmethod
    def attach(
        cls,
        name: str,
        *,
        heartbeat_timeout: float = 30.0,
        on_status: Callable[[EngineStatus], None] | None = None,
    ) -> CoreClient:
        """Make a client of the engine that runs under this name or id."""

        async def open_process() -> EngineProcess:
            return find_engine(name)

        return cls(open_process, heartbeat_timeout=heartbeat_timeout, on_status=on_status)

    @property
    def ready(self) -> EngineReady:
        """What the engine said of itself."""
        assert self._ready is not None, "the client has not been entered"
        return self._ready

    @property
    def engine_id(self) -> str:
        """Id of the engine, which is also a name to attach to."""
        return self._process.descriptor.engine_id

    @property
    def log_path(self) -> str:
        """Where the engine writes its log."""
        return self._process.descriptor.log_path

    async def add_request(self, request: EngineCoreRequest) -> None:
        """Send a request. Raises EngineDeadError."""
        self._send(RequestType.ADD, self._images.pack(request))

    async def abort(self, request_ids: list[str]) -> None:
        """End requests; no output follows. A dead engine has ended them already."""
        for request_id in request_ids:
            self._images.forget(request_id)
        if self._error is None:
            self._send(RequestType.ABORT, request_ids)

    async def call_utility(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        """Call a method of `EngineUtilities`. After "shutdown", closing waits until the process is gone.

        Raises EngineRequestError if it fails, TimeoutError, EngineDeadError.
        """
        self._stop_wanted |= method == "shutdown"
        call_id = self._calls.begin()
        self._send(RequestType.UTILITY, UtilityRequest(call_id, method, list(args)))
        with anyio.fail_after(timeout):
            return await self._calls.wait(call_id)

    async def receive(self) -> EngineCoreOutputs:
        """Return the next outputs. Raises EngineDeadError after the last ones."""
        while not self._outputs:
            if self._error is not None:
                raise copy.copy(self._error)
            await self._arrival.wait()
            self._arrival = anyio.Event()
        return self._outputs.popleft()

    async def stop_engine(self) -> None:
        """End the engine whatever its lifetime is, and close."""
        self._stop_wanted = True
        await self.aclose()

    async def __aenter__(self) -> CoreClient:
        self._process = await self._open_process()
        self._resources.callback(self._process.close)
        try:
            await self._connect()
            await self._started.wait()
            if self._error is not None:
                raise copy.copy(self._error)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Part from the engine as its lifetime says. Safe to call twice."""
        self._fail(EngineDeadError("the connection to the engine was closed"))
        await self._resources.aclose()

    async def _connect(self) -> None:
        self._transport = ClientTransport(self._process.descriptor)
        self._resources.callback(self._close_transport)
        self._resources.callback(lambda: self._images.close())
        tasks = anyio.create_task_group()
        await tasks.__aenter__()

        async def end_tasks() -> None:
            tasks.cancel_scope.cancel()
            await tasks.__aexit__(None, None, None)

        self._resources.push_async_callback(end_tasks)
        self._resources.push_async_callback(self._end_process)
        tasks.start_soon(self._receive_messages)
        tasks.start_soon(self._watch_process)
        tasks.start_soon(self._heartbeat.run)
        self._transport.say_hello()

    async def _end_process(self) -> None:
        process = self._process
        never_ready = process.is_child and self._ready is None
        if not (process.dies_with_this_process or never_ready or self._stop_wanted):
            return
        with anyio.CancelScope(shield=True):
            if not self._hung:
                self._transport.send(RequestType.UTILITY, UtilityRequest(_HEARTBEAT_ID, "shutdown"))
            await process.end(patient=not self._hung)

    def _close_transport(self) -> None:
        self._transport.close(say_goodbye=self._process.watch.is_alive)

    def _send(self, kind: RequestType, message: Any) -> None:
        if self._error is not None:
            raise copy.copy(self._error)
        self._transport.send(kind, message)

    def _fail(self, error: EngineError) -> None:
        """The first error is the one that counts."""
        if self._error is None:
            self._error = error
            self._calls.fail_all(error)
            self._started.set()
            self._arrival.set()

    async def _receive_messages(self) -> None:
        try:
            while True:
                for _ in range(_BURST):
                    self._take(await self._transport.receive())
                await checkpoint()
        except ProtocolError as error:
            self._fail(EngineDeadError(f"the engine sent what cannot be read: {error}"))

    def _take(self, message: EngineMessage) -> None:
        self._heartbeat.hear()
        match message:
            case EngineCoreOutputs():
                self._note_images(message)
                self._outputs.append(message)
                self._arrival.set()
            case UtilityReply(output):
                self._heartbeat.hear(is_answer=output.call_id == _HEARTBEAT_ID)
                self._calls.complete(output)
            case EngineStatus():
                self._show(message)
            case EngineReady():
                self._ready = message
                self._images = _image_sender(message)
                self._heartbeat.engine_is_ready = True
                self._started.set()
            case EngineFailure():
                self._fail(start_error(message, self._process.descriptor))
            case EngineDead() if self._ready is None:
                self._fail(
                    EngineStartError(message.message, phase=self._phase, log_path=self.log_path)
                )
            case EngineDead():
                self._fail(dead_error(message, self.log_path))

    def _note_images(self, message: EngineCoreOutputs) -> None:
        for request_id in message.missing_images:
            if self._error is None and (request := self._images.recall(request_id)) is not None:
                self._transport.send(RequestType.ADD, request)
        for output in message.outputs:
            self._images.forget(output.request_id)

    def _show(self, status: EngineStatus) -> None:
        self._phase = status.phase
        if status.tokenizer_dir and self.on_tokenizer is not None:
            self.on_tokenizer(status.tokenizer_dir)
        if self._on_status is not None:
            try:
                self._on_status(status)
            except Exception:
                _LOGGER.exception("The status callback failed")

    async def _watch_process(self) -> None:
        process = self._process
        await process.watch.wait()
        # What it said last comes first.
        await anyio.sleep(_LAST_MESSAGES_S)
        if self._ready is None:
            self._fail(crash_error(process, self._phase))
        else:
            end = process.describe_end()
            self._fail(
                EngineDeadError(f"the engine process {end}\nLog of the engine: {self.log_path}")
            )

    def _send_ping(self) -> None:
        self._transport.send(RequestType.UTILITY, UtilityRequest(_HEARTBEAT_ID, "ping"))

    def _give_up(self, silent_s: float) -> None:
        self._hung = True
        pid = self._process.descriptor.pid
        self._fail(
            EngineDeadError(
                f"no heartbeat for {silent_s:g} s: the engine (pid {pid}) is there but does not "
                f"answer\nLog of the engine: {self.log_path}"
            )
        )


def _image_sender(ready: EngineReady) -> ImageSender | SharedImageSender:
    if ready.config.mm_processor_cache_type == "shm":
        return SharedImageSender(ready.config.mm_processor_cache_bytes)
    return ImageSender(ready.mm_cache_bytes)
