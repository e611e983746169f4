"""Turns a drawn frame into a small PNG, quickly."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["PaletteEncoder"]

_BITS = 5
_NUM_BINS = 1 << 3 * _BITS
_MAX_COLOURS = 255
_UNKNOWN = 255
_SIGNATURE = b"\x89PNG\r\n\x1a\n"

_Pixels = npt.NDArray[np.uint32]


class PaletteEncoder:
    """Encodes RGBA frames of one size as PNGs with a palette that it has learned from a frame.

    A plot has few colours, and one byte for a pixel is a third of the work and of the bytes of RGB. Colours are told
    apart by their upper five bits; one that was not learned becomes the nearest that was. Alpha is ignored.
    """

    def __init__(self, width: int, height: int, *, level: int = 1) -> None:
        self._level = level
        self._shape = (height, width)
        self._bins: _Pixels = np.empty(self._shape, np.uint32)
        self._part: _Pixels = np.empty(self._shape, np.uint32)
        self._indices = np.empty(self._shape, np.uint8)
        self._rows = np.zeros(
            (height, 1 + width), np.uint8
        )  # the first byte of a row is its filter: none
        self._lut = np.full(_NUM_BINS, _UNKNOWN, np.uint8)
        self._colours = np.zeros((0, 3), np.int64)
        self._palette = b""

    def learn(self, rgba: npt.NDArray[np.uint8]) -> None:
        """Take the commonest colours of a frame [height, width, 4] as the palette."""
        pixels = self._pixels(rgba)
        colours, counts = np.unique(pixels, return_counts=True)
        rare_first = np.argsort(counts, kind="stable")
        colours, counts = colours[rare_first], counts[rare_first]
        bins = _bins_of(colours)
        colour_of_bin = np.zeros(_NUM_BINS, np.uint32)
        colour_of_bin[bins] = colours  # the commonest colour of a bin stands for it
        pixels_of_bin = np.bincount(bins, weights=counts, minlength=_NUM_BINS)
        common = np.argsort(-pixels_of_bin, kind="stable")[
            : min(_MAX_COLOURS, len(set(bins.tolist())))
        ]
        chosen = colour_of_bin[common]
        self._colours = np.stack([chosen >> shift & 0xFF for shift in (0, 8, 16)], axis=1).astype(
            np.int64
        )
        self._palette = self._colours.astype(np.uint8).tobytes()
        self._lut.fill(_UNKNOWN)
        self._lut[common] = np.arange(len(common), dtype=np.uint8)

    def encode(self, rgba: npt.NDArray[np.uint8]) -> bytes:
        """Return a frame [height, width, 4] as PNG. There must have been a `learn`."""
        _bins_of(self._pixels(rgba), self._bins, self._part)
        self._lut.take(self._bins, out=self._indices, mode="clip")
        if self._indices.max() == _UNKNOWN:
            self._approximate()
            self._lut.take(self._bins, out=self._indices, mode="clip")
        self._rows[:, 1:] = self._indices
        height, width = self._shape
        header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
        return b"".join(
            [
                _SIGNATURE,
                _chunk(b"IHDR", header),
                _chunk(b"PLTE", self._palette),
                _chunk(b"IDAT", zlib.compress(self._rows.data, self._level)),
                _chunk(b"IEND", b""),
            ]
        )

    def _approximate(self) -> None:
        """Give each new colour of the current frame its nearest one of the palette."""
        new = np.unique(self._bins[self._indices == _UNKNOWN])
        mask = (1 << _BITS) - 1
        shifts = (2 * _BITS, _BITS, 0)
        middles = np.stack([(new >> shift & mask) * 8 + 4 for shift in shifts], axis=1)
        distances = ((middles[:, None].astype(np.int64) - self._colours[None]) ** 2).sum(axis=2)
        self._lut[new] = distances.argmin(axis=1).astype(np.uint8)

    def _pixels(self, rgba: npt.NDArray[np.uint8]) -> _Pixels:
        height, width = self._shape
        assert rgba.shape == (height, width, 4), f"{rgba.shape} is not {height} x {width} RGBA"
        return np.ascontiguousarray(rgba).view("<u4").reshape(height, width)


def _bins_of(pixels: _Pixels, out: _Pixels | None = None, part: _Pixels | None = None) -> _Pixels:
    """Return the upper five bits of red, green and blue as one number for each pixel (0xAABBGGRR)."""
    bins: Any = np.bitwise_and(pixels, 0xF8, out=out)
    np.left_shift(bins, 7, out=bins)
    for mask, shift in ((0xF800, 6), (0xF80000, 19)):
        channel = np.bitwise_and(pixels, mask, out=part)
        np.right_shift(channel, shift, out=channel)
        np.bitwise_or(bins, channel, out=bins)
    return bins  # type: ignore[no-any-return]


def _chunk(kind: bytes, data: bytes) -> bytes:
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
