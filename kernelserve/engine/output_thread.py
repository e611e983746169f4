"""Sends everything that the engine says."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

import zmq

from kernelserve.protocol import EngineFailure, EngineMessage
from kernelserve.wire import WireEncoder

__all__ = ["OutputThread"]

_LOGGER = logging.getLogger(__name__)
_HIGH_WATER_MARK = 100_000
"""Messages that wait for one client; more means that it does not read any more."""
_LAST_WORDS_LINGER_MS = 500


class OutputThread:
    """A queue of messages and the thread that encodes them, with one PUSH socket a client.

    Every method only queues and may be called from any thread; the order of the calls is the order on the wire. The
    sockets are made, used and closed in the thread alone.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        *,
        on_client_stuck: Callable[[int], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._context = context
        self._on_client_stuck = on_client_stuck
        self._on_failure = on_failure
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._sockets: dict[int, zmq.Socket[bytes]] = {}
        self._encoder = WireEncoder()
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def connect(self, index: int, address: str) -> None:
        """Open the way to a client."""
        self._jobs.put(lambda: self._connect(index, address))

    def send(self, index: int, message: EngineMessage) -> None:
        """Send to one client; nothing happens if it is gone."""
        self._jobs.put(lambda: self._send((index,), message))

    def broadcast(self, message: EngineMessage) -> None:
        """Send to all clients."""
        self._jobs.put(lambda: self._send(tuple(self._sockets), message))

    def disconnect(self, index: int) -> None:
        """Close the way to a client and drop what it has not read."""
        self._jobs.put(lambda: self._disconnect(index))

    def refuse(self, address: str, failure: EngineFailure) -> None:
        """Tell somebody who is not a client why not."""
        self._jobs.put(lambda: self._refuse(address, failure))

    def stop(self, timeout: float) -> None:
        """Send what is queued, then end the thread; what clients have not read stays for them a moment longer."""
        self._jobs.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                job()
        except Exception as error:
            self._on_failure(error)
        finally:
            for socket in self._sockets.values():
                socket.close(linger=_LAST_WORDS_LINGER_MS)

    def _connect(self, index: int, address: str) -> None:
        self._sockets[index] = self._open(address)

    def _disconnect(self, index: int) -> None:
        socket = self._sockets.pop(index, None)
        if socket is not None:
            socket.close(linger=0)

    def _send(self, indices: tuple[int, ...], message: EngineMessage) -> None:
        frames = self._encoder.encode(message)
        for index in indices:
            socket = self._sockets.get(index)
            if socket is None:
                continue
            try:
                socket.send_multipart(frames, zmq.NOBLOCK)
            except zmq.Again:
                _LOGGER.warning("Client %d does not read its messages: it is dropped", index)
                self._disconnect(index)
                self._on_client_stuck(index)

    def _refuse(self, address: str, failure: EngineFailure) -> None:
        try:
            socket = self._open(address)
        except zmq.ZMQError as error:
            _LOGGER.warning("A refused client cannot be told at %r: %s", address, error)
            return
        socket.send_multipart(self._encoder.encode(failure), zmq.NOBLOCK)
        socket.close(linger=_LAST_WORDS_LINGER_MS)

    def _open(self, address: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.PUSH)
        socket.sndhwm = _HIGH_WATER_MARK
        socket.reconnect_ivl = 20
        try:
            socket.connect(address)
        except zmq.ZMQError:
            socket.close(linger=0)
            raise
        return socket
