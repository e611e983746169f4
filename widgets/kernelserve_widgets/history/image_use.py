"""An image that a request needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kernelserve.protocol import StepRecord

__all__ = ["ImageUse", "images_of"]


class ImageUse(NamedTuple):
    """An image that was encoded for a request, or was found in the encoder cache (then it took no time).

    Images of one step are encoded together: each of them has the time of all. Times are seconds of the engine's clock.
    """

    step: int
    start: float
    end: float
    num_embeds: int
    is_hit: bool


def images_of(record: StepRecord) -> Iterator[tuple[str, ImageUse]]:
    """Yield (request id, image) for what a step encoded, then for what it found."""
    start = record.timestamp + record.schedule_time
    end = start + record.encode_time
    for image in record.encoder_inputs:
        yield image.request_id, ImageUse(record.step, start, end, image.num_embeds, False)
    for image in record.encoder_hits:
        yield image.request_id, ImageUse(record.step, start, start, image.num_embeds, True)
