"""One picture that somebody dropped, as it is in the kernel."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import kernelserve as ks
from kernelserve_widgets.views.thumbnails import EncodedThumbnail, as_base64, encode_small, shrink

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Picture", "read_picture"]

_SUFFIXES = {"PNG": "png", "JPEG": "jpg", "MPO": "jpg", "JPEG2000": "jp2", "TIFF": "tif"}
"""By Pillow's name of the format; the others have their own name as suffix."""


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """Whatever takes an image takes this: `llm.chat`, `%%generate --image`, `to_pil()` gives it to others."""

    data: bytes = field(repr=False)
    """The file, as it was dropped or as the browser made it smaller."""
    name: str
    mime: str
    size: tuple[int, int]
    """Width and height in pixels, as a viewer shows it."""
    suffix: str = field(repr=False)
    thumbnail: EncodedThumbnail = field(repr=False)
    note: str = ""
    """What was done to it on the way, such as shrinking."""
    file: str = ""
    """Where it is kept, from the notebook's folder; empty if it is not."""

    def to_pil(self) -> Image:
        """Return it as a PIL image, not turned and not flattened."""
        from PIL import Image

        return Image.open(io.BytesIO(self.data))

    def describe(self) -> str:
        """Say in a few words what it is."""
        width, height = self.size
        words = [f"{width:,} x {height:,}", size_text(len(self.data)), self.note]
        return " · ".join(word for word in words if word)

    def _repr_mimebundle_(self, **_: Any) -> Any:
        mime, data = self.thumbnail
        return {"text/plain": repr(self), mime: as_base64(data)}


def read_picture(data: bytes, name: str, *, note: str = "", file: str = "") -> Picture:
    """Return the picture in these bytes. Raises InvalidRequestError if the engine would not take it either."""
    pixels = ks.ImageReader().read(data)
    kind, mime = _format_of(data)
    thumbnail = encode_small(shrink(pixels))
    size = (pixels.width, pixels.height)
    suffix = _SUFFIXES.get(kind, kind.lower())
    return Picture(data, name, mime, size, suffix, thumbnail, note, file)


def size_text(num_bytes: int) -> str:
    """Return a number of bytes for people."""
    for unit, size in (("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes} bytes"


def _format_of(data: bytes) -> tuple[str, str]:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as picture:
        kind = picture.format or ""
    return kind, Image.MIME.get(kind, "application/octet-stream")
