"""The up to 255 colours of a picture, and which of them each pixel has."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Indices", "Palette", "Pixels"]

_BITS = 5
_NUM_BINS = 1 << 3 * _BITS
_MAX_COLOURS = 255
_UNKNOWN = 255

Pixels = npt.NDArray[np.uint8]
"""RGBA, [height, width, 4]."""
Indices = npt.NDArray[np.uint8]
"""Numbers of colours, [height, width]."""


class Palette:
    """Learns the colours of the RGBA pictures that it sees, besides some that are always there with the first numbers.

    A plot has few colours, and one byte for a pixel is a third of the work and of the bytes of RGB. Colours are told
    apart by their upper five bits. When all numbers are taken, other colours become the nearest one. Alpha is ignored.
    """

    def __init__(self, fixed: npt.NDArray[np.uint8] | None = None) -> None:
        self._fixed = np.zeros((0, 3), np.uint8) if fixed is None else fixed
        self.colours = self._fixed
        """Red, green and blue, [colours, 3]."""
        self._lut = np.full(_NUM_BINS, _UNKNOWN, np.uint8)
        self.forget()

    def forget(self) -> None:
        """Forget what was learned; numbers that were returned before mean nothing any more."""
        self.colours = self._fixed
        bins = _bins_of(_words(np.pad(self._fixed, ((0, 0), (0, 1)))))
        self._lut.fill(_UNKNOWN)
        self._lut[bins] = np.arange(len(bins), dtype=np.uint8)

    def indices(self, picture: Pixels) -> Indices:
        """Return the number of the colour of each pixel."""
        pixels = _words(picture)
        bins = _bins_of(pixels)
        found = self._lut.take(bins)
        if (is_new := found == _UNKNOWN).any():
            self._learn(pixels[is_new], bins[is_new])
            found = self._lut.take(bins)
        return found

    def pixels(self, indices: Indices) -> Pixels:
        """Return a picture of its numbers."""
        table = np.full((len(self.colours), 4), 255, np.uint8)
        table[:, :3] = self.colours
        # One take of whole pixels: four times as fast as one of their parts.
        words = table.view(np.uint32)[:, 0].take(indices)
        return words.view(np.uint8).reshape(*indices.shape, 4)

    def _learn(self, pixels: npt.NDArray[np.uint32], bins: npt.NDArray[np.uint32]) -> None:
        """Add the commonest of new colours while there is room; give the other ones the nearest that is there."""
        num_pixels = np.bincount(bins, minlength=_NUM_BINS)
        colour_of_bin = np.zeros(_NUM_BINS, np.uint32)
        colour_of_bin[bins] = pixels  # any colour of a bin stands for it
        new = np.flatnonzero(num_pixels)
        new = new[np.argsort(-num_pixels[new], kind="stable")]
        colours = np.stack([colour_of_bin[new] >> shift & 0xFF for shift in (0, 8, 16)], axis=1)
        count = len(self.colours)
        num_added = min(len(new), _MAX_COLOURS - count)
        added = colours[:num_added].astype(np.uint8)
        self.colours = np.concatenate([self.colours, added])
        self._lut[new[:num_added]] = np.arange(count, count + num_added, dtype=np.uint8)
        if num_added < len(new):
            rest = colours[num_added:, None].astype(np.int64)
            distances = ((rest - self.colours[None].astype(np.int64)) ** 2).sum(axis=2)
            self._lut[new[num_added:]] = distances.argmin(axis=1).astype(np.uint8)


def _words(picture: Pixels) -> npt.NDArray[np.uint32]:
    """Return each pixel as one number, 0xAABBGGRR."""
    words: Any = np.ascontiguousarray(picture).view("<u4")
    return words[..., 0]  # type: ignore[no-any-return]


def _bins_of(pixels: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return the upper five bits of red, green and blue as one number for each pixel."""
    bins: Any = np.bitwise_and(pixels, 0xF8)
    np.left_shift(bins, 7, out=bins)
    for mask, shift in ((0xF800, 6), (0xF80000, 19)):
        channel = np.bitwise_and(pixels, mask)
        np.right_shift(channel, shift, out=channel)
        np.bitwise_or(bins, channel, out=bins)
    return bins  # type: ignore[no-any-return]
