"""Finds the images in the messages of a chat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelserve.client.prompt import SLOW_CHARS
from kernelserve.errors import InvalidRequestError
from kernelserve.multimodal.image_holder import spread_images

__all__ = ["chat_chars", "has_images", "take_images"]

_KINDS = ("image", "image_url", "input_image", "image_pil")
_SOURCES = ("image", "image_url", "url", "path", "data", "image_pil")


def has_images(messages: object) -> bool:
    """Whether any message has a part that is an image."""
    return any(_is_image(part) for message in _sequence(messages) for part in _parts(message))


def chat_chars(messages: Sequence[Any]) -> int:
    """Return how much work it is to process a chat, in characters of text. Images are much."""
    return SLOW_CHARS if has_images(messages) else sum(len(str(message)) for message in messages)


def take_images(messages: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the messages with each image replaced by `{"type": "image"}`, and the images in order.

    A part with what holds several images becomes as many parts. Raises InvalidRequestError for one without an image.
    """
    images: list[Any] = []
    chat: list[Any] = []
    for message in messages:
        parts = _parts(message)
        if not any(map(_is_image, parts)):
            chat.append(message)
            continue
        content = []
        for part in parts:
            if not _is_image(part):
                content.append(part)
                continue
            own = spread_images([_source(part)])
            images += own
            content += [{"type": "image"}] * len(own)
        chat.append({**message, "content": content})
    return chat, images


def _parts(message: object) -> Sequence[Any]:
    content = message.get("content") if isinstance(message, Mapping) else None
    return _sequence(content)


def _sequence(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _is_image(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _KINDS


def _source(part: Mapping[str, Any]) -> Any:
    for name in _SOURCES:
        source = part.get(name)
        if isinstance(source, Mapping) and "url" in source:
            source = source["url"]
        if source is not None:
            return source
    raise InvalidRequestError(
        f"a part of type {part['type']!r} has no image: give it as 'image', or as 'image_url' with a "
        f"'url' (it has {', '.join(map(str, part))})"
    )
