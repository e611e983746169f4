"""The client's side of the shared memory through which arrays of images reach the engine."""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import struct
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kernelserve.protocol import SharedArrays
from kernelserve.wire import WireArray

__all__ = ["ALIGNMENT", "GENERATION", "SEALS", "SECRET_BYTES", "SegmentWriter"]

SECRET_BYTES = 16
"""At the start of a segment: whoever names it must know them."""
ALIGNMENT = 64
GENERATION = struct.Struct("<Q")
"""At the start of a slot; its arrays follow, each at a multiple of the alignment."""
SEALS = (
    fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    if hasattr(fcntl, "F_SEAL_SEAL")
    else 0
)
"""Nobody can take away pages that the other side reads, which would kill it."""


@dataclass(slots=True)
class _Slot:
    end: int
    place: SharedArrays


class SegmentWriter:
    """A ring of slots in a memory file without a name, so that it is gone with the last process that has it open.

        | secret | gen a | arrays of a | gen b | arrays of b |   free   |
                 ^ oldest                                    ^ head

    The oldest slots are overwritten. A slot whose generation is not the one in its SharedArrays has been: readers
    look before and after they copy. So nobody has to say that he is done, and nobody waits.

    Raises OSError where there is no such memory.
    """

    def __init__(self, max_bytes: int) -> None:
        self._size = ALIGNMENT + _aligned(max_bytes)
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._fd = os.memfd_create("kernelserve-images", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._fd, self._size)
            fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, SEALS)
            self._map = mmap.mmap(self._fd, self._size)
        except BaseException:
            os.close(self._fd)
            raise
        self._map[:SECRET_BYTES] = self._secret
        self._head = ALIGNMENT
        self._allocated = ALIGNMENT
        """Bytes from the start whose pages are known to be there."""
        self._generation = secrets.randbits(62)
        self._slots: OrderedDict[str, _Slot] = OrderedDict()
        """Content hash -> slot, oldest first."""

    def get(self, mm_hash: str) -> SharedArrays | None:
        """Return where the arrays of an image lie, None if they do not."""
        slot = self._slots.get(mm_hash)
        return slot.place if slot else None

    def put(
        self, mm_hash: str, data: Mapping[str, WireArray], keep: Collection[str] = ()
    ) -> SharedArrays | None:
        """Write the arrays of an image that is not there, over the oldest but none of `keep`. None: no room."""
        needed = ALIGNMENT + sum(_aligned(array.data.nbytes) for array in data.values())
        start = self._head if self._head + needed <= self._size else ALIGNMENT
        end = start + needed
        if end > self._size or not self._make_room(start, end, keep):
            return None
        self._generation += 1
        arrays: dict[str, tuple[str, list[int], int]] = {}
        offset = start + ALIGNMENT
        for name, array in data.items():
            self._map[offset : offset + array.data.nbytes] = array.data
            arrays[name] = (array.dtype, list(array.shape), offset)
            offset += _aligned(array.data.nbytes)
        GENERATION.pack_into(self._map, start, self._generation)
        place = SharedArrays(self._fd, self._secret, start, self._generation, arrays)
        self._slots[mm_hash] = _Slot(end, place)
        self._head = end
        return place

    def close(self) -> None:
        """Let go of the memory. Safe to call twice."""
        if self._fd >= 0:
            self._map.close()
            os.close(self._fd)
            self._fd = -1
            self._slots.clear()

    def _make_room(self, start: int, end: int, keep: Collection[str]) -> bool:
        victims = [
            mm_hash
            for mm_hash, slot in self._slots.items()
            if slot.place.offset < end and start < slot.end
        ]
        if not set(victims).isdisjoint(keep) or not self._allocate(end):
            return False
        for mm_hash in victims:
            GENERATION.pack_into(self._map, self._slots.pop(mm_hash).place.offset, 0)
        return True

    def _allocate(self, end: int) -> bool:
        """Ask for pages: to touch one that is not to be had would kill this process."""
        if end > self._allocated:
            try:
                os.posix_fallocate(self._fd, self._allocated, end - self._allocated)
            except OSError:
                return False
            self._allocated = end
        return True


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
