"""The engine's side of the shared memory through which arrays of images come."""

from __future__ import annotations

import fcntl
import mmap
import os

from kernelserve.errors import InvalidRequestError, ProtocolError
from kernelserve.multimodal.segment_writer import GENERATION, SEALS, SECRET_BYTES
from kernelserve.protocol import SharedArrays
from kernelserve.wire import WireArray

__all__ = ["SegmentReader"]


class SegmentReader:
    """Maps the segment of a client to read it; the writer may overwrite slots at any time.

    Raises InvalidRequestError if the segment cannot be opened or is not the one that `place` names.
    """

    def __init__(self, pid: int, place: SharedArrays) -> None:
        self.fd, self.secret = place.fd, place.secret
        try:
            self._map = _open(pid, place.fd)
        except (OSError, ValueError) as error:
            raise _unreadable(pid, str(error)) from error
        if len(place.secret) != SECRET_BYTES or self._map[:SECRET_BYTES] != place.secret:
            self.close()
            raise _unreadable(pid, "another one has its place")

    def read(self, place: SharedArrays) -> dict[str, WireArray] | None:
        """Return a copy of the arrays of an image, None if they have been overwritten.

        Raises ProtocolError for a place outside of the segment.
        """
        if not 0 <= place.offset <= len(self._map) - GENERATION.size:
            raise ProtocolError(f"offset {place.offset} is outside of {len(self._map)} bytes")
        if not self._is_there(place):
            return None
        arrays = {}
        for name, (dtype, shape, offset) in place.arrays.items():
            size = WireArray.num_bytes(dtype, shape)
            if not 0 <= offset <= len(self._map) - size:
                raise ProtocolError(f"offset {offset} is outside of {len(self._map)} bytes")
            arrays[name] = WireArray(dtype, shape, self._map[offset : offset + size])
        return arrays if self._is_there(place) else None

    def close(self) -> None:
        """Let go of the memory."""
        self._map.close()

    def _is_there(self, place: SharedArrays) -> bool:
        (generation,) = GENERATION.unpack_from(self._map, place.offset)
        return bool(generation == place.generation)


def _open(pid: int, fd: int) -> mmap.mmap:
    own = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if fcntl.fcntl(own, fcntl.F_GET_SEALS) & SEALS != SEALS:
            raise ValueError("its size is not sealed")
        return mmap.mmap(own, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(own)


def _unreadable(pid: int, reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"the engine cannot read the shared memory of process {pid} ({reason}): start the engine with "
        "mm_processor_cache_type='lru'"
    )
