"""How large a picture may be. Checked on its header, before anything is decoded."""

from __future__ import annotations

from dataclasses import dataclass

from kernelserve.errors import InvalidRequestError

__all__ = ["ImageLimits"]


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Limits for one picture. Both checks raise InvalidRequestError: value, limit, remedy."""

    max_bytes: int = 64 * 2**20
    """Of the encoded file."""
    max_pixels: int = 64 * 2**20
    min_side: int = 4
    """Pixels; below that there is nothing to see."""
    max_aspect: int = 200
    """Longer side / shorter side. Models fail on, or see nothing of, what is thinner."""

    def check_bytes(self, num_bytes: int) -> None:
        """Refuse a file that is empty or too large."""
        if num_bytes == 0:
            raise InvalidRequestError("the image is empty: it has 0 bytes")
        if num_bytes > self.max_bytes:
            raise InvalidRequestError(
                f"the image has {num_bytes:,} bytes, the limit is {self.max_bytes:,}: make it smaller"
            )

    def check_size(self, width: int, height: int) -> None:
        """Refuse a picture with too few or too many pixels, or one that is nearly a line."""
        size = f"the image is {width:,} by {height:,} pixels"
        shorter, longer = sorted((width, height))
        if shorter < self.min_side:
            raise InvalidRequestError(
                f"{size}, but each side must have at least {self.min_side}: enlarge or crop it"
            )
        if width * height > self.max_pixels:
            raise InvalidRequestError(
                f"{size}, {width * height:,} in all, the limit is {self.max_pixels:,}: scale it down"
            )
        if longer > shorter * self.max_aspect:
            raise InvalidRequestError(
                f"{size}: one side is more than {self.max_aspect} times the other, crop it"
            )
