"""Draws matplotlib figures and axes as a notebook shows them, without pyplot."""

from __future__ import annotations

import io
import math
from typing import Any

from kernelserve.multimodal.image_decoder import decode_bytes
from kernelserve.multimodal.image_limits import ImageLimits
from kernelserve.multimodal.image_pixels import ImagePixels

__all__ = ["is_figure", "pixels_of_figure"]


def is_figure(value: object) -> bool:
    """Whether `value` is a matplotlib Figure or Axes, or a subclass of one."""
    return any(base.__module__.startswith("matplotlib.") for base in type(value).__mro__) and (
        hasattr(value, "savefig") or hasattr(value, "get_figure")
    )


def pixels_of_figure(value: Any, limits: ImageLimits) -> ImagePixels:
    """Return the pixels of a figure, or of one of its axes with its labels."""
    figure = value if hasattr(value, "savefig") else value.get_figure(root=True)
    dpi = figure.dpi
    width, height = figure.get_size_inches()
    limits.check_size(math.ceil(width * dpi), math.ceil(height * dpi))
    box: Any = "tight"
    if value is not figure:
        box = value.get_tightbbox().transformed(figure.dpi_scale_trans.inverted())
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi, bbox_inches=box)
    return decode_bytes(file.getvalue(), limits)
