"""Objects that hold images, such as drop zones: how they hand them over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from kernelserve.errors import InvalidRequestError

__all__ = ["ImageHolder", "held_images", "spread_images"]


class ImageHolder(Protocol):
    """Any class with this method is taken wherever an image is, and stands for all its images."""

    def _kernelserve_images_(self) -> Sequence[Any]:
        """Return the images, in order, as they are now. Raises InvalidRequestError if it has none to give."""


def held_images(source: Any) -> Sequence[Any] | None:
    """Return the images of a holder, None if `source` is none. Raises InvalidRequestError if it is empty."""
    method = getattr(
        type(source), "_kernelserve_images_", None
    )  # objects that make up attributes have none
    if method is None:
        return None
    images: Sequence[Any] = method(source)
    if not images:
        raise InvalidRequestError(f"the {type(source).__name__} holds no image yet")
    return images


def spread_images(sources: Iterable[Any]) -> list[Any]:
    """Return the images with each holder replaced by what it holds. Raises InvalidRequestError for an empty one."""
    images: list[Any] = []
    for source in sources:
        held = held_images(source)
        images += [source] if held is None else held
    return images
