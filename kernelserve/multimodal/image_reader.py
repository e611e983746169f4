"""Reads whatever a caller calls an image. Classes of other packages are known by what they can do, never imported."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from kernelserve.errors import InvalidRequestError
from kernelserve.multimodal.image_arrays import (
    is_array,
    is_tensor,
    pixels_of_array,
    pixels_of_tensor,
)
from kernelserve.multimodal.image_decoder import decode_bytes, pixels_of_picture
from kernelserve.multimodal.image_fetch import fetch_bytes, read_file
from kernelserve.multimodal.image_figures import is_figure, pixels_of_figure
from kernelserve.multimodal.image_holder import held_images
from kernelserve.multimodal.image_limits import ImageLimits
from kernelserve.multimodal.image_pixels import ImagePixels

__all__ = ["IMAGE_KINDS", "ImageReader"]

IMAGE_KINDS = (
    "a PIL image, an array, a tensor, a matplotlib figure or axes, an image widget, an upload, "
    "a drop zone, bytes, a path, or an http(s) or data URL"
)


class ImageReader:
    """Makes the same pixels of the same picture, whichever way it comes. Stateless, for any thread."""

    def __init__(self, limits: ImageLimits | None = None) -> None:
        self._limits = limits or ImageLimits()

    def read(self, source: Any) -> ImagePixels:
        """Return the pixels of `source`. Raises InvalidRequestError in one line that can be read alone."""
        limits = self._limits
        if isinstance(source, ImagePixels):
            return source
        if isinstance(source, bytes | bytearray | memoryview):
            return decode_bytes(source, limits)
        if isinstance(source, str):
            return decode_bytes(fetch_bytes(source, limits), limits)
        if isinstance(source, os.PathLike):
            return decode_bytes(read_file(source, limits), limits)
        if is_tensor(source):
            return pixels_of_tensor(source, limits)
        if _is_picture(source):
            return pixels_of_picture(source, limits)
        if is_figure(source):
            return pixels_of_figure(source, limits)
        if is_array(source):
            return pixels_of_array(source, limits)
        return self._read_holder(source)

    def _read_holder(self, source: Any) -> ImagePixels:
        """Read what holds a picture in other forms: widgets, uploads, display objects."""
        if (images := held_images(source)) is not None:
            return self.read(list(images))
        if isinstance(source, Mapping):
            return self._read_upload(source)
        if isinstance(source, Sequence):
            if len(source) != 1:
                raise InvalidRequestError(
                    f"{len(source)} images where one is expected: give them one by one"
                )
            return self.read(source[0])
        value = getattr(source, "value", None)  # ipywidgets.Image, FileUpload
        if isinstance(value, bytes | memoryview | Mapping | tuple):
            if not value:
                raise InvalidRequestError(f"the {type(source).__name__} holds no image yet")
            return self.read(value)
        data = getattr(source, "data", None)  # IPython.display.Image
        if isinstance(data, bytes):
            return self.read(data)
        if isinstance(url := getattr(source, "url", None), str):
            return self.read(url)
        png = getattr(source, "_repr_png_", None)
        if callable(png) and isinstance(shown := png(), bytes):
            return self.read(shown)
        raise InvalidRequestError(f"a {type(source).__name__} is no image: give {IMAGE_KINDS}")

    def _read_upload(self, upload: Mapping[str, Any]) -> ImagePixels:
        """Read one file of FileUpload: {"content": bytes}, or {name: {"content": bytes}} of ipywidgets 7."""
        if "content" in upload:
            return self.read(upload["content"])
        if len(upload) == 1 and isinstance(inner := next(iter(upload.values())), Mapping):
            return self.read(inner)
        raise InvalidRequestError(
            f"a dict with {', '.join(map(str, upload)) or 'nothing'} is no image: give {IMAGE_KINDS}"
        )


def _is_picture(source: object) -> bool:
    """Whether `source` is a PIL image of any kind."""
    return any(
        base.__module__ == "PIL.Image" and base.__name__ == "Image" for base in type(source).__mro__
    )
