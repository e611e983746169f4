"""One file on its way from the browser."""

from __future__ import annotations

import kernelserve as ks
from kernelserve_widgets.dropzone.zone_limits import ZoneLimits

__all__ = ["Upload"]


class Upload:
    """Puts chunks together. They may come in any order and twice: a kernel has several threads that hear messages."""

    def __init__(self, name: str, num_bytes: int, note: str, limits: ZoneLimits) -> None:
        """Raises InvalidRequestError before anything is sent if it is too large."""
        limits.image.check_bytes(num_bytes)
        self.name = name
        self.note = note
        self._chunk = limits.chunk
        self._data = bytearray(num_bytes)
        self._missing = set(range(0, num_bytes, limits.chunk))

    @property
    def is_complete(self) -> bool:
        """Whether every byte is here."""
        return not self._missing

    @property
    def data(self) -> bytes:
        """All of it."""
        assert self.is_complete, "some of it is missing"
        return bytes(self._data)

    def put(self, at: int, chunk: memoryview | bytes) -> None:
        """Enter a chunk. Raises InvalidRequestError if it does not fit."""
        length = memoryview(chunk).nbytes
        if at % self._chunk or length != self._length(at):
            raise ks.InvalidRequestError(
                f"the upload of {self.name!r} was interrupted: {length:,} bytes came for place {at:,} of "
                f"{len(self._data):,}. Drop it again"
            )
        self._data[at : at + length] = chunk
        self._missing.discard(at)

    def missing(self, most: int) -> list[int]:
        """Return where the first chunks begin that are not here."""
        return sorted(self._missing)[:most]

    @property
    def num_received(self) -> int:
        """Bytes that are here."""
        return len(self._data) - sum(self._length(at) for at in self._missing)

    def _length(self, at: int) -> int:
        return min(self._chunk, len(self._data) - at)
