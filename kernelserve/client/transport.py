"""The two sockets of a client, awaited under asyncio and trio."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import zmq

from kernelserve.client.registry import EngineDescriptor
from kernelserve.errors import EngineDeadError
from kernelserve.process_identity import process_start_time
from kernelserve.protocol import PROTOCOL_VERSION, ClientHello, EngineMessage, RequestType
from kernelserve.wire import MAX_MESSAGE_BYTES, WireDecoder, WireEncoder

__all__ = ["ClientTransport"]

_BYE_LINGER_MS = 200


class ClientTransport:
    """A DEALER that talks to the engine and a PULL, bound in the engine's run directory, that hears it.

    Sending never waits: what the engine does not read yet is kept. For one event loop; not thread-safe.
    Raises EngineDeadError if the run directory is gone.
    """

    def __init__(self, descriptor: EngineDescriptor) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._path = Path(descriptor.run_dir) / f"c-{secrets.token_hex(4)}.sock"
        self._dealer = self._context.socket(zmq.DEALER)
        self._pull = self._context.socket(zmq.PULL)
        self._encoder = WireEncoder()
        self._decoder: WireDecoder[EngineMessage] = WireDecoder(EngineMessage)
        try:
            self._open(descriptor.address)
        except zmq.ZMQError as error:
            self._close_sockets()
            raise EngineDeadError(
                f"the engine {descriptor.name!r} cannot be reached any more: {error}"
            ) from error
        self._fd = self._pull.fileno()
        self._hello = ClientHello(
            protocol_version=PROTOCOL_VERSION,
            token=descriptor.token,
            output_address=f"ipc://{self._path}",
            pid=os.getpid(),
            pid_start_time=process_start_time(os.getpid()),
        )

    def say_hello(self) -> None:
        """Introduce this client; the engine answers when its socket is there."""
        self.send(RequestType.HELLO, self._hello)

    def send(self, kind: RequestType, message: Any) -> None:
        """Send one message."""
        frames: Sequence[bytes | memoryview] = self._encoder.encode(message)
        self._dealer.send_multipart([kind.value, *frames], zmq.NOBLOCK)

    async def receive(self) -> EngineMessage:
        """Return the next message. Raises ProtocolError for one that cannot be read."""
        while True:
            if (message := self.receive_nowait()) is not None:
                return message
            # The descriptor is edge-triggered: wait only when nothing is left, by the socket's own word.
            if not self._pull.poll(0):
                await anyio.wait_readable(self._fd)

    def receive_nowait(self) -> EngineMessage | None:
        """Return the next message if it is there."""
        try:
            frames = self._pull.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        return self._decoder.decode(frames)

    def close(self, *, say_goodbye: bool) -> None:
        """Close the sockets. A goodbye waits for at most 0.2 s until it is out."""
        if say_goodbye:
            self.send(RequestType.BYE, None)
            self._dealer.linger = _BYE_LINGER_MS
        self._close_sockets()
        self._path.unlink(missing_ok=True)

    def _open(self, address: str) -> None:
        self._pull.linger = 0
        self._pull.rcvhwm = 0
        self._pull.maxmsgsize = MAX_MESSAGE_BYTES
        self._pull.bind(f"ipc://{self._path}")
        self._dealer.linger = 0
        self._dealer.sndhwm = 0
        self._dealer.reconnect_ivl = 10
        self._dealer.connect(address)

    def _close_sockets(self) -> None:
        self._dealer.close()
        self._pull.close()
        self._context.term()
