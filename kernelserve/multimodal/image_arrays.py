"""Pixels of ndarrays and of tensors, told apart from other objects by what they can do. numpy is imported when used."""

from __future__ import annotations

from typing import Any

from kernelserve.errors import InvalidRequestError
from kernelserve.multimodal.image_limits import ImageLimits
from kernelserve.multimodal.image_pixels import ImagePixels

__all__ = ["deep_to_8_bits", "is_array", "is_tensor", "pixels_of_array", "pixels_of_tensor"]

_CHANNELS = (1, 2, 3, 4)


def is_array(value: object) -> bool:
    """Whether `value` is an ndarray, or hands itself over as one."""
    return hasattr(value, "__array_interface__") or hasattr(value, "__array__")


def is_tensor(value: object) -> bool:
    """Whether `value` is a torch tensor. torch is not imported: who has a tensor has done that."""
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def pixels_of_array(array: Any, limits: ImageLimits) -> ImagePixels:
    """Return the pixels of an array [height, width] or [height, width, 1 | 2 | 3 | 4].

    Integers are 0 to 255 (uint16: to 65,535), floats 0 to 1. The last of 2 or 4 channels is opacity.
    Raises InvalidRequestError for other shapes and values.
    """
    import numpy as np

    values = np.asarray(array)
    if values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] not in _CHANNELS):
        hint = ""
        if values.ndim == 3 and values.shape[0] in _CHANNELS:
            hint = ". Channels come last: use array.transpose(1, 2, 0)"
        raise InvalidRequestError(
            f"an array of shape {list(values.shape)} is no image: it must be [height, width] or "
            f"[height, width, 1 | 3 | 4]{hint}"
        )
    limits.check_size(values.shape[1], values.shape[0])
    shown = _over_white(_to_uint8(values))
    return ImagePixels(shown.shape[1], shown.shape[0], shown.tobytes())


def pixels_of_tensor(tensor: Any, limits: ImageLimits) -> ImagePixels:
    """Return the pixels of a torch tensor [height, width] or [1 | 3 | 4, height, width]."""
    plain = tensor.detach().cpu()
    if plain.is_floating_point():
        plain = plain.float()  # numpy has no bfloat16
    values = plain.numpy()
    if values.ndim == 3 and values.shape[0] in _CHANNELS:
        values = values.transpose(1, 2, 0)
    elif values.ndim == 3:
        raise InvalidRequestError(
            f"a tensor of shape {list(values.shape)} is no image: it must be [height, width] or "
            "[1 | 3 | 4, height, width]"
        )
    return pixels_of_array(values, limits)


def deep_to_8_bits(values: Any) -> Any:
    """Return uint8 [height, width] of greyscale with 16 bits, or of floats from 0 to 1."""
    import numpy as np

    if values.dtype.kind == "f":
        return _to_uint8(values)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 65535:
        raise InvalidRequestError(
            f"the image has values from {low} to {high}: deep greyscale goes from 0 to 65,535"
        )
    return (values.astype(np.uint16) >> 8).astype(np.uint8)


def _to_uint8(values: Any) -> Any:
    import numpy as np

    if values.dtype == np.uint8:
        return values
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * np.uint8(255)
    if values.dtype == np.uint16:
        return (values >> 8).astype(np.uint8)
    if values.dtype.kind not in "iuf":
        raise InvalidRequestError(f"an array of {values.dtype} is no image: use uint8 or float")
    low, high = values.min(), values.max()
    limit = 1 if values.dtype.kind == "f" else 255
    if not (low >= 0 and high <= limit):  # written so that NaN is refused
        raise InvalidRequestError(
            f"the array has values from {low:g} to {high:g}: an image of {values.dtype} goes from "
            f"0 to {limit}. Scale it, or convert it to uint8"
        )
    scaled = values if limit == 255 else np.rint(values * 255)
    return scaled.astype(np.uint8)


def _over_white(values: Any) -> Any:
    """Return uint8 [height, width, 3] of one to four channels."""
    import numpy as np

    if values.ndim == 2:
        values = values[:, :, None]
    channels = values.shape[2]
    if channels in (2, 4):
        # By Pillow, so that an array and a PNG of it give the same pixels to the last bit.
        from PIL import Image

        full = values if channels == 4 else values[:, :, [0, 0, 0, 1]]
        layer = Image.fromarray(np.ascontiguousarray(full))
        white = Image.new("RGBA", layer.size, (255, 255, 255, 255))
        return np.asarray(Image.alpha_composite(white, layer).convert("RGB"))
    return np.ascontiguousarray(np.broadcast_to(values, (*values.shape[:2], 3)))
