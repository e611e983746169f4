"""Where the images of one request stand, and which of their embeddings a range of tokens takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelserve.protocol import MultiModalFeatureSpec, PlaceholderRange

__all__ = ["ImageSlice", "RequestImages"]


@dataclass(slots=True, frozen=True)
class ImageSlice:
    """A part of an image that is computed in a step.

    Example: a range of 6 positions from 10 on, of which 11, 12, 14 and 15 take an embedding. The
    tokens [12, 15) take embeddings 1 to 3 of it, at positions 12 and 14.
    """

    mm_hash: str
    first: int
    last: int
    """Embeddings [first, last) of the image."""
    positions: NDArray[np.int64]
    """The token position of each of them."""


class RequestImages:
    """The images of a prompt, by offset."""

    def __init__(self, features: list[MultiModalFeatureSpec]) -> None:
        self.features = features
        self.rope_positions: NDArray[np.int64] | None = None
        """M-RoPE: time, row and column [3, n] of the prompt (and of what was generated before a preemption)."""
        self._taking = [_taking(feature.position) for feature in features]
        self._runs = [run for positions in self._taking for run in _runs(positions)]

    def slices(self, start: int, end: int) -> Iterator[ImageSlice]:
        """Yield what the tokens [start, end) take from each image."""
        for feature, positions in zip(self.features, self._taking, strict=True):
            first, last = np.searchsorted(positions, (start, end))
            if first < last:
                here = positions[first:last]
                yield ImageSlice(feature.mm_hash, int(first), int(last), here)

    def spans(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the runs of embeddings [first, last) that have a token in [start, end)."""
        return [span for span in self._runs if span[0] < end and start < span[1]]

    def mask(self, num_tokens: int) -> NDArray[np.bool_]:
        """Return which of the first `num_tokens` tokens take an embedding; all images lie in them."""
        result = np.zeros(num_tokens, np.bool_)
        for positions in self._taking:
            result[positions] = True
        return result


def _taking(position: PlaceholderRange) -> NDArray[np.int64]:
    """The token positions that take an embedding, in order."""
    if position.is_embed is None:
        return np.arange(position.offset, position.offset + position.length)
    return position.offset + np.frombuffer(position.is_embed, np.uint8).nonzero()[0]


def _runs(positions: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Split ascending positions where one is left out."""
    parts = np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1)
    return [(int(part[0]), int(part[-1]) + 1) for part in parts]
