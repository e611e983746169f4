"""Receives everything that clients say and turns it into work for the busy loop."""

from __future__ import annotations

import logging
import queue
import secrets
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import zmq

from kernelserve.core.request import Request
from kernelserve.engine.client_table import Client, ClientTable
from kernelserve.engine.output_thread import OutputThread
from kernelserve.engine.reception import Reception
from kernelserve.errors import ProtocolError
from kernelserve.multimodal.mirrored_cache import ImageReceiver
from kernelserve.multimodal.shared_images import SharedImageReceiver
from kernelserve.protocol import (
    PROTOCOL_VERSION,
    ClientHello,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineFailure,
    FinishReason,
    RequestType,
    UtilityRequest,
)
from kernelserve.wire import MAX_MESSAGE_BYTES, WireDecoder

__all__ = ["InputItem", "InputThread"]

_LOGGER = logging.getLogger(__name__)
_MAX_BURST = 256
_MAX_ADDRESS = 200

InputItem = tuple[RequestType, int, Any]
"""(kind, client index, Request | request ids | UtilityRequest | None). BYE: the client is gone."""


class _AnyHello(msgspec.Struct):
    """The part of a ClientHello that every version can read."""

    protocol_version: int
    output_address: str


class InputThread:
    """The ROUTER socket and the thread that reads it.

    Whatever arrives, the thread goes on: garbage is logged and dropped, and a request that cannot be built ends with
    the finish reason `error`. Aborts are queued twice: in order, so that none overtakes its request, and in
    `eager_aborts`, so that a running step can take notice.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        socket_path: Path,
        *,
        token: str,
        clients: ClientTable,
        output: OutputThread,
        reception: Reception,
        clock: Callable[[], float],
        block_size: int,
        make_image_receiver: Callable[[int], ImageReceiver | SharedImageReceiver] | None,
        on_shutdown: Callable[[int], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._socket = context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.rcvhwm = 0
        self._socket.maxmsgsize = MAX_MESSAGE_BYTES
        self._socket.bind(f"ipc://{socket_path}")
        self._socket_dir = socket_path.parent
        self._token = token
        self._clients = clients
        self._output = output
        self._reception = reception
        self._clock = clock
        self._block_size = block_size
        self._make_image_receiver = make_image_receiver
        """Called with the pid of a client; None: images come whole."""
        self._image_receivers: dict[int, ImageReceiver | SharedImageReceiver] = {}
        self._on_shutdown = on_shutdown
        self._on_failure = on_failure
        self._hello_decoder: WireDecoder[ClientHello] = WireDecoder(ClientHello)
        self._any_hello_decoder: WireDecoder[_AnyHello] = WireDecoder(_AnyHello)
        self._request_decoder: WireDecoder[EngineCoreRequest] = WireDecoder(EngineCoreRequest)
        self._abort_decoder: WireDecoder[list[str]] = WireDecoder(list[str])
        self._utility_decoder: WireDecoder[UtilityRequest] = WireDecoder(UtilityRequest)
        self.items: queue.SimpleQueue[InputItem | None] = queue.SimpleQueue()
        """What the busy loop takes; None only wakes it."""
        self.eager_aborts: deque[list[str]] = deque()
        self._watched: list[tuple[int, Callable[[], None]]] = []
        self._tick: Callable[[], None] = lambda: None
        self._tick_s = 1.0
        self._thread = threading.Thread(target=self._run, name="input", daemon=True)

    def start(self, *, tick: Callable[[], None], tick_s: float) -> None:
        """Begin to receive. `tick` is called in the thread about every `tick_s` seconds."""
        self._tick = tick
        self._tick_s = tick_s
        self._thread.start()

    def watch(self, fd: int, on_readable: Callable[[], None]) -> None:
        """Call `on_readable` in the thread when `fd` is readable. Only before `start`."""
        self._watched.append((fd, on_readable))

    def drop_client(self, index: int) -> None:
        """Forget a client: close its way, abort its requests. Only in the input thread."""
        client = self._clients.remove(index)
        if client is None:
            return
        if (receiver := self._image_receivers.pop(index, None)) is not None:
            receiver.close()
        self._output.disconnect(index)
        self.items.put((RequestType.BYE, index, None))
        left_behind = Path(client.address.removeprefix("ipc://"))
        if left_behind.parent == self._socket_dir:
            left_behind.unlink(missing_ok=True)

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        for fd, _ in self._watched:
            poller.register(fd, zmq.POLLIN)
        next_tick = self._clock()
        try:
            while True:
                timeout_ms = max(0, int((next_tick - self._clock()) * 1000) + 1)
                ready = dict(poller.poll(timeout_ms))
                if self._socket in ready:
                    self._receive_burst()
                for fd, on_readable in self._watched:
                    if fd in ready:
                        on_readable()
                if self._clock() >= next_tick:
                    self._tick()
                    next_tick = self._clock() + self._tick_s
        except zmq.ContextTerminated:
            pass
        except Exception as error:
            self._on_failure(error)
        finally:
            self._socket.close(linger=0)

    def _receive_burst(self) -> None:
        for _ in range(_MAX_BURST):
            try:
                identity, *frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                self._handle(identity, frames)
            except Exception as error:
                _LOGGER.warning("A message of %s was dropped: %r", identity.hex(), error)

    def _handle(self, identity: bytes, frames: Sequence[bytes]) -> None:
        if len(frames) < 2:
            raise ProtocolError(f"{len(frames)} frames are too few")
        kind = RequestType(frames[0])
        body = frames[1:]
        if kind is RequestType.HELLO:
            self._let_in(identity, body)
            return
        client = self._clients.by_identity(identity)
        if client is None:
            raise ProtocolError(f"{kind.name} before HELLO")
        match kind:
            case RequestType.ADD:
                self._add(client, body)
            case RequestType.ABORT:
                request_ids = self._abort_decoder.decode(body)
                self.eager_aborts.append(request_ids)
                self.items.put((kind, client.index, request_ids))
            case RequestType.UTILITY:
                call = self._utility_decoder.decode(body)
                if call.method == "shutdown":
                    self._on_shutdown(client.pid)
                self.items.put((kind, client.index, call))
            case RequestType.BYE:
                self.drop_client(client.index)

    def _let_in(self, identity: bytes, body: Sequence[bytes]) -> None:
        anyone = self._any_hello_decoder.decode(body)
        address = anyone.output_address
        if not address.startswith("ipc:///") or len(address) > _MAX_ADDRESS:
            raise ProtocolError(f"{address!r:.80} is not the address of a local socket")
        if anyone.protocol_version != PROTOCOL_VERSION:
            self._refuse(
                address,
                "protocol",
                f"the engine speaks protocol version {PROTOCOL_VERSION}, the client "
                f"{anyone.protocol_version}: use one version of kernelserve in both",
            )
            return
        hello = self._hello_decoder.decode(body)
        if not secrets.compare_digest(hello.token.encode(), self._token.encode()):
            self._refuse(address, "start", "the engine refused the client: wrong token")
            return
        if self._clients.by_identity(identity) is not None:
            raise ProtocolError("a second HELLO")
        client = self._clients.add(identity, hello)
        _LOGGER.info("Client %d has connected: pid %d", client.index, client.pid)
        self._output.connect(client.index, address)
        self._reception.welcome(client.index)

    def _refuse(self, address: str, code: str, message: str) -> None:
        _LOGGER.warning("A client was refused: %s", message)
        self._output.refuse(address, EngineFailure(code=code, phase="handshake", message=message))

    def _add(self, client: Client, body: Sequence[bytes]) -> None:
        try:
            message = self._request_decoder.decode(body)
            message.client_index = client.index
            if not self._find_images(client, message):
                missing = EngineCoreOutputs(missing_images=[message.request_id])
                self._output.send(client.index, missing)
                return
            request = Request.from_engine_core_request(
                message, block_size=self._block_size, now=self._clock()
            )
        except Exception as error:
            _LOGGER.warning("A request of client %d cannot be served", client.index, exc_info=True)
            self._fail_request(client.index, body[0], error)
            return
        self.items.put((RequestType.ADD, client.index, request))

    def _find_images(self, client: Client, message: EngineCoreRequest) -> bool:
        """Put in the images that the client left out because they are here; False if one is not."""
        if self._make_image_receiver is None or not message.mm_features:
            return True
        if client.index not in self._image_receivers:
            self._image_receivers[client.index] = self._make_image_receiver(client.pid)
        return self._image_receivers[client.index].unpack(message)

    def _fail_request(self, index: int, body: bytes, error: Exception) -> None:
        """End one request with the reason `error`, if its id can still be read."""
        fields = msgspec.msgpack.decode(body, type=list[Any])
        if not fields or not isinstance(fields[0], str):
            return
        failed = EngineCoreOutput(
            fields[0], [], finish_reason=FinishReason.ERROR, stop_reason=str(error)
        )
        self._output.send(index, EngineCoreOutputs([failed], timestamp=self._clock()))
