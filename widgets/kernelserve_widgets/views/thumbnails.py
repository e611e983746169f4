"""Small pictures of large ones: what a saved notebook keeps of the images that a model saw."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["EncodedThumbnail", "Pixels", "as_base64", "contact_sheet", "encode_small", "shrink"]

EncodedThumbnail = tuple[str, bytes]
"""MIME type and data."""

_HEIGHT = 96
_MAX_WIDTH = 192
_MAX_BYTES = 7000
"""Of each picture; as base64 that is under 10 kB."""
_GAP = 6
_SHEET_WIDTH = 800
_QUALITIES = (85, 75, 60, 40, 20)


class Pixels(Protocol):
    """What `kernelserve.ImageReader` returns."""

    @property
    def width(self) -> int:
        """In pixels."""

    @property
    def height(self) -> int:
        """In pixels."""

    @property
    def rgb(self) -> bytes:
        """Red, green and blue of each pixel, row by row from the top."""


def shrink(pixels: Pixels) -> Image:
    """Return a picture at most 192 pixels wide and 96 high; a small one as it is."""
    from PIL import Image

    picture = Image.frombytes("RGB", (pixels.width, pixels.height), pixels.rgb)
    picture.thumbnail((_MAX_WIDTH, _HEIGHT), reducing_gap=3.0)
    return picture


def encode_small(picture: Image, max_bytes: int = _MAX_BYTES) -> EncodedThumbnail:
    """Return a PNG if that is small, as of drawings and figures, else a JPEG over white."""
    png = _encoded(picture, "PNG", optimize=True)
    if len(png) <= max_bytes:
        return "image/png", png
    shown = _over_white(picture)
    for quality in _QUALITIES:
        jpeg = _encoded(shown, "JPEG", quality=quality, optimize=True)
        if len(jpeg) <= max_bytes:
            break
    return "image/jpeg", jpeg


def as_base64(data: bytes) -> str:
    """Return binary data as notebooks hold it."""
    return base64.b64encode(data).decode()


def contact_sheet(pictures: Sequence[Image]) -> EncodedThumbnail:
    """Return thumbnails side by side in one picture, as many rows as needed: any reader of notebooks can show that."""
    from PIL import Image

    places, width, height = _lay_out(pictures)
    sheet = Image.new("RGBA", (width, height), (255, 255, 255, 0))
    for picture, place in zip(pictures, places, strict=True):
        sheet.paste(picture, place)
    opaque = len(pictures) == 1
    return encode_small(sheet.convert("RGB") if opaque else sheet, _MAX_BYTES * len(pictures))


def _lay_out(pictures: Sequence[Image]) -> tuple[list[tuple[int, int]], int, int]:
    """Return the corner of each picture, and width and height of all."""
    places, x, y, row, width = [], 0, 0, 0, 0
    for picture in pictures:
        if x and x + picture.width > _SHEET_WIDTH:
            x, y, row = 0, y + row + _GAP, 0
        places.append((x, y))
        width, row = max(width, x + picture.width), max(row, picture.height)
        x += picture.width + _GAP
    return places, width, y + row


def _over_white(picture: Image) -> Image:
    from PIL import Image

    if picture.mode == "RGB":
        return picture
    white = Image.new("RGBA", picture.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, picture).convert("RGB")


def _encoded(picture: Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()
