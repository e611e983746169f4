"""The identity of an image: equal hashes promise equal features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kernelserve.multimodal.image_pixels import ImagePixels

__all__ = ["hash_image"]

_VERSION = 1
_THREADED_BYTES = 2**20
"""From here on a second thread pays."""


def hash_image(pixels: ImagePixels, *, model: str, options: Mapping[str, Any]) -> str:
    """Return 64 hex digits over the pixels, their shape, the model and the options of its processor.

    The parts are framed by the first one, which names the sizes: no two inputs give the same bytes.
    """
    from blake3 import blake3

    frame = [_VERSION, model, "RGB", pixels.width, pixels.height, options]
    header = msgspec.json.encode(frame, order="deterministic")
    threads = blake3.AUTO if len(pixels.rgb) >= _THREADED_BYTES else 1
    digest = blake3(len(header).to_bytes(8, "little") + header, max_threads=threads)
    digest.update(pixels.rgb)
    value: str = digest.hexdigest()
    return value
