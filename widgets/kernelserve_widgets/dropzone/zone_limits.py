"""What a drop zone takes as it is, what it makes smaller, and how it is sent."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import kernelserve as ks

__all__ = ["ZoneLimits"]


@dataclass(frozen=True, slots=True)
class ZoneLimits:
    """Limits of the way from the browser to the kernel; those of a picture itself are the engine's own."""

    image: ks.ImageLimits
    as_it_is: int = 8 * 10**6
    """Bytes. A larger file is made smaller in the browser, if that can read it; else it is sent as it is."""
    shrunk_side: int = 2048
    """Longer side in pixels of what was made smaller: no less than any known model uses of a photo."""
    chunk: int = 512 * 1024
    """Bytes in one message: proxies and servers refuse, or drop the connection at, messages of 1 MB and more."""
    window: int = 4
    """Chunks on the way at a time."""
    max_pictures: int = 32

    def to_json(self) -> dict[str, Any]:
        """Return what the script of the zone reads."""
        own = asdict(self)
        image: dict[str, Any] = own.pop("image")
        return image | own
