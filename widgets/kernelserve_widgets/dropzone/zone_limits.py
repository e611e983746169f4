"""What a drop zone takes as it is, what it makes smaller, and how it is sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import kernelserve as ks

__all__ = ["FindLimits", "ZoneLimits"]

_LEAST_SIDE = 512
"""The file beside the notebook is also for people, and for the next model."""


@dataclass(frozen=True, slots=True)
class ZoneLimits:
    """Limits of the way from the browser to the kernel; those of a picture itself are the engine's own."""

    image: ks.ImageLimits
    as_it_is: int = 8 * 10**6
    """Bytes. A larger file is made smaller in the browser, if that can read it; else it is sent as it is."""
    shrunk_side: int = 2048
    """Longer side in pixels of what was made smaller."""
    chunk: int = 512 * 1024
    """Bytes in one message: proxies and servers refuse, or drop the connection at, messages of 1 MB and more."""
    window: int = 4
    """Chunks on the way at a time."""
    max_pictures: int = 32

    def for_model(self, image_side: int) -> ZoneLimits:
        """Return the limits for a model that makes use of pictures up to this longer side; 0: not known."""
        if not image_side:
            return self
        return replace(self, shrunk_side=min(self.shrunk_side, max(image_side, _LEAST_SIDE)))

    def to_json(self) -> dict[str, Any]:
        """Return what the script of the zone reads."""
        own = asdict(self)
        image: dict[str, Any] = own.pop("image")
        return image | own


FindLimits = Callable[[], ZoneLimits]
"""What applies now: it depends on the engine that runs."""
