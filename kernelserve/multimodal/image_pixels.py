"""What every route ends in: red, green and blue of each pixel, as a viewer would show the picture."""

from __future__ import annotations

from dataclasses import dataclass

from kernelserve.wire import WireArray

__all__ = ["ImagePixels"]


@dataclass(frozen=True, slots=True)
class ImagePixels:
    """`rgb` holds height * width * 3 bytes, row by row from the top."""

    width: int
    height: int
    rgb: bytes

    def to_array(self) -> WireArray:
        """Return the pixels as uint8 [height, width, 3]; nothing is copied."""
        return WireArray("uint8", (self.height, self.width, 3), self.rgb)
