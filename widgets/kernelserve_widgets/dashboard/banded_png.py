"""A picture with a palette that becomes a PNG again and again, of which only a part has changed each time."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from kernelserve_widgets.dashboard.palette import Indices, Palette

__all__ = ["BandedPng"]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_ZLIB_HEADER = b"\x78\x01"
_NO_HEADER = -15
_ADLER_BASE = 65521


class BandedPng:
    """Write into `pixels`, tell what was written by `touch`, then `encode`.

    Rows are compressed in bands that know nothing of each other and begin at 0 and at the rows `cuts`: a band that was
    not touched is not compressed again.
    """

    def __init__(
        self, width: int, height: int, palette: Palette, *, cuts: Sequence[int] = (), level: int = 1
    ) -> None:
        self._palette = palette
        self._level = level
        self._header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
        # The first byte of a row is its filter: none.
        self._rows = np.zeros((height, 1 + width), np.uint8)
        self.pixels: Indices = self._rows[:, 1:]
        """Numbers of the palette, [height, width]."""
        self._bands: dict[tuple[int, int], bytes] = dict.fromkeys(pairwise([0, *cuts, height]), b"")
        self._sums = dict.fromkeys(self._bands, 1)
        """Adler-32 of the rows of each band."""
        self._last = b""

    def touch(self, top: int, bottom: int) -> None:
        """Note that rows from `top` on and before `bottom` were written."""
        for band_top, band_bottom in self._bands:
            if top < band_bottom and bottom > band_top:
                self._bands[band_top, band_bottom] = self._last = b""

    def encode(self) -> bytes:
        """Return the picture as PNG; the same object as before if nothing was touched."""
        if not self._last:
            for band, packed in self._bands.items():
                if not packed:
                    self._bands[band] = self._compress(*band)
            check = struct.pack(">I", self._sum_of_all())
            data = b"".join([_ZLIB_HEADER, *self._bands.values(), check])
            chunks = [
                _chunk(b"IHDR", self._header),
                _chunk(b"PLTE", self._palette.colours.tobytes()),
                _chunk(b"IDAT", data),
                _chunk(b"IEND", b""),
            ]
            self._last = _SIGNATURE + b"".join(chunks)
        return self._last

    def _compress(self, top: int, bottom: int) -> bytes:
        self._sums[top, bottom] = zlib.adler32(self._rows[top:bottom].data)
        compressor = zlib.compressobj(self._level, zlib.DEFLATED, _NO_HEADER)
        is_last = bottom == len(self._rows)
        packed = compressor.compress(self._rows[top:bottom].data)
        return packed + compressor.flush(zlib.Z_FINISH if is_last else zlib.Z_FULL_FLUSH)

    def _sum_of_all(self) -> int:
        """Return the Adler-32 of all rows: half of it adds bytes up, the other half adds those sums up."""
        low, high = 1, 0
        for (top, bottom), band in self._sums.items():
            num_bytes = (bottom - top) * self._rows.shape[1]
            high = (high + num_bytes * (low - 1) + (band >> 16)) % _ADLER_BASE
            low = (low + (band & 0xFFFF) - 1) % _ADLER_BASE
        return high << 16 | low


def _chunk(kind: bytes, data: bytes) -> bytes:
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
