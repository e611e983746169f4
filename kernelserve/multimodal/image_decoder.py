"""Turns encoded pictures and PIL images into pixels as a viewer shows them. Pillow is imported when it is used."""

from __future__ import annotations

import io
import logging
import threading
import warnings
from typing import Any

from kernelserve.errors import InvalidRequestError
from kernelserve.multimodal.image_limits import ImageLimits
from kernelserve.multimodal.image_pixels import ImagePixels

__all__ = ["decode_bytes", "pixels_of_picture"]

_FORMATS = (
    "PNG",
    "JPEG",
    "MPO",
    "WEBP",
    "GIF",
    "BMP",
    "TIFF",
    "PPM",
    "ICO",
    "JPEG2000",
    "AVIF",
)
"""Read by Pillow's own code. The others run programs (EPS), take any bytes for theirs (TGA), or are rare."""
_HIGH_BYTE_MODES = ("I;16", "I;16B", "I;16L", "I;16N")
_OPENING = threading.Lock()
_LOGGER = logging.getLogger(__name__)


def decode_bytes(data: bytes | bytearray | memoryview, limits: ImageLimits) -> ImagePixels:
    """Return the pixels of an encoded picture, of its first frame if it has several.

    Raises InvalidRequestError if it is too large, of an unknown format, or damaged.
    """
    limits.check_bytes(memoryview(data).nbytes)
    picture = _open(bytes(data), limits)
    with picture:
        return pixels_of_picture(picture, limits)


def pixels_of_picture(picture: Any, limits: ImageLimits) -> ImagePixels:
    """Return the pixels of a PIL image: upright, over white where it is transparent.

    Raises InvalidRequestError if it is too large or its data cannot be decoded.
    """
    limits.check_size(*picture.size)
    try:
        picture.load()
        shown = _flatten(_turn_upright(picture))
        return ImagePixels(shown.width, shown.height, shown.tobytes())
    except InvalidRequestError:
        raise
    except Exception as error:  # the decoders raise whatever they like
        raise InvalidRequestError(f"the image is damaged: {_reason(error)}") from error


def _turn_upright(picture: Any) -> Any:
    """Apply the orientation of the camera. What cannot be read of it is passed over, as viewers do."""
    from PIL import ExifTags, ImageOps

    try:
        if picture.getexif().get(ExifTags.Base.Orientation, 1) == 1:
            return picture  # not a copy: photos are large
        return ImageOps.exif_transpose(picture)
    except Exception:
        _LOGGER.debug("The EXIF data of an image cannot be read", exc_info=True)
        return picture


def _open(data: bytes, limits: ImageLimits) -> Any:
    from PIL import Image, UnidentifiedImageError

    Image.init()  # registers all formats, once
    known = [kind for kind in _FORMATS if kind in Image.OPEN]
    try:
        # Pillow warns of large pictures where our own limit says so with numbers.
        with _OPENING, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Image.open(io.BytesIO(data), formats=known)
    except Image.DecompressionBombError as error:
        raise InvalidRequestError(
            f"the image has far more pixels than the limit of {limits.max_pixels:,}: scale it down"
        ) from error
    except UnidentifiedImageError:
        raise InvalidRequestError(
            f"the image is of no known format: its {len(data):,} bytes begin with {data[:8]!r}. "
            f"Known are {', '.join(known)}"
        ) from None
    except Exception as error:
        raise InvalidRequestError(f"the image is damaged: {_reason(error)}") from error


def _flatten(picture: Any) -> Any:
    """Return an RGB image: 16 bits to 8, palettes and CMYK resolved, transparency over white."""
    from PIL import Image

    picture = _to_8_bits(picture)
    has_alpha = not {"A", "a"}.isdisjoint(picture.getbands())
    if not has_alpha and picture.info.get("transparency") is None:
        return picture if picture.mode == "RGB" else picture.convert("RGB")
    layer = picture.convert("RGBA")
    white = Image.new("RGBA", layer.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, layer).convert("RGB")


def _to_8_bits(picture: Any) -> Any:
    """Scale deep greyscale as viewers do. Pillow would cut everything above 255 to white."""
    if picture.mode in _HIGH_BYTE_MODES or picture.mode in ("I", "F"):
        from PIL import Image

        from kernelserve.multimodal.image_arrays import deep_to_8_bits

        return Image.fromarray(deep_to_8_bits(_as_array(picture)))
    return picture


def _as_array(picture: Any) -> Any:
    import numpy as np

    return np.asarray(picture)


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
