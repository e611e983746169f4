"""Messages over a pair of pipes: a count, the sizes, then the frames of `wire.py`."""

from __future__ import annotations

import os
import select
import struct
import time
from typing import Any, Generic, TypeVar

from kernelserve.errors import ProtocolError
from kernelserve.wire import MAX_MESSAGE_BYTES, WireDecoder, WireEncoder

__all__ = ["FramePipe"]

_T = TypeVar("_T")
_CHUNK = 1 << 20
_MAX_FRAMES = 1024


class FramePipe(Generic[_T]):
    """Sends any struct, receives structs of one type. For one thread at a time; owns neither descriptor."""

    def __init__(self, read_fd: int, write_fd: int, message_type: type[_T]) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._encoder = WireEncoder()
        self._decoder: WireDecoder[_T] = WireDecoder(message_type)

    def send(self, message: Any) -> None:
        """Write one message; waits until the other side has read it. Raises OSError if that is gone."""
        frames = [memoryview(frame).cast("B") for frame in self._encoder.encode(message)]
        sizes = [frame.nbytes for frame in frames]
        self._write(memoryview(struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)))
        for frame in frames:
            self._write(frame)

    def receive(self, timeout_s: float | None = None) -> _T:
        """Return the next message. Raises EOFError at the end, TimeoutError, ProtocolError."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        (count,) = struct.unpack("<I", self._read(4, deadline))
        if count > _MAX_FRAMES:
            raise ProtocolError(f"a message of {count} frames is over the limit of {_MAX_FRAMES}")
        sizes = struct.unpack(f"<{count}Q", self._read(8 * count, deadline))
        if sum(sizes) > MAX_MESSAGE_BYTES:
            raise ProtocolError(f"a message of {sum(sizes)} bytes is over {MAX_MESSAGE_BYTES}")
        frames = [memoryview(self._read(size, deadline)) for size in sizes]
        return self._decoder.decode(frames)

    def _write(self, data: memoryview) -> None:
        while data:
            data = data[os.write(self._write_fd, data[:_CHUNK]) :]

    def _read(self, size: int, deadline: float | None) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            if deadline is not None:
                left = max(0.0, deadline - time.monotonic())
                if not select.select([self._read_fd], [], [], left)[0]:
                    raise TimeoutError("no answer in time")
            got = os.readv(self._read_fd, [view[:_CHUNK]])
            if not got:
                raise EOFError("the other side has closed the pipe")
            view = view[got:]
        return data
