"""The forms in which a caller may give a prompt, and their reading."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any

import msgspec

from kernelserve.client.chat_prompt import ChatPrompt
from kernelserve.errors import InvalidRequestError
from kernelserve.multimodal.image_holder import spread_images

__all__ = ["SLOW_CHARS", "Prompt", "PromptParts", "prompt_chars", "split_prompt"]

Prompt = str | Sequence[int] | Mapping[str, Any] | tuple[str, Sequence[int]] | ChatPrompt
"""Text, token ids, {"prompt": text}, {"prompt_token_ids": ids}, text and its ids as a pair, or a rendered chat.

A dict may also hold {"multi_modal_data": {"image": image or images}} and `mm_processor_kwargs`."""

_TEXT_KEYS = {"prompt", "prompt_token_ids"}
_KEYS = _TEXT_KEYS | {"multi_modal_data", "mm_processor_kwargs"}
SLOW_CHARS = 2**31
"""More than any event loop should wait for."""


@dataclass(slots=True)
class PromptParts:
    """A prompt taken apart. It has text, or token ids, or both."""

    text: str | None
    token_ids: list[int] | None = None
    images: Sequence[Any] = ()
    processor_options: dict[str, Any] = field(default_factory=dict)
    is_marked: bool = False
    """The text has LITERAL_MARKs and IMAGE_SLOTs: it is a rendered chat."""


def split_prompt(prompt: Prompt) -> PromptParts:
    """Take a prompt apart. Raises InvalidRequestError."""
    if isinstance(prompt, ChatPrompt):
        return PromptParts(prompt.marked_text, images=prompt.images, is_marked=True)
    text, ids, images, options = _split(prompt)
    if ids is not None:
        return PromptParts(text, _as_ids(ids), images, options)
    if not isinstance(text, str):
        raise InvalidRequestError(
            f"the prompt {prompt!r:.80} is neither text nor token ids nor a dict with one of them"
        )
    return PromptParts(text, None, images, options)


def prompt_chars(prompt: Any) -> int:
    """Return how much work it is to process a prompt, in characters of text. Images are much."""
    if isinstance(prompt, ChatPrompt):
        return SLOW_CHARS if prompt.images else len(prompt.marked_text)
    if isinstance(prompt, Mapping):
        return SLOW_CHARS if prompt.get("multi_modal_data") else len(str(prompt.get("prompt")))
    return len(prompt) if isinstance(prompt, str) else 0


def _split(prompt: Any) -> tuple[Any, Any, Sequence[Any], dict[str, Any]]:
    if isinstance(prompt, str):
        return prompt, None, (), {}
    if isinstance(prompt, Mapping):
        unknown = prompt.keys() - _KEYS
        if unknown:
            raise InvalidRequestError(
                f"the prompt has {', '.join(sorted(map(str, unknown)))}: this engine takes text, "
                f"as {' or '.join(sorted(_TEXT_KEYS))}, and images, as multi_modal_data"
            )
        options = prompt.get("mm_processor_kwargs") or {}
        if not isinstance(options, Mapping):
            raise InvalidRequestError(f"mm_processor_kwargs={options!r:.80} must be a dict")
        _check_plain(options)
        images = _images(prompt.get("multi_modal_data"))
        return prompt.get("prompt"), prompt.get("prompt_token_ids"), images, dict(options)
    if isinstance(prompt, tuple) and len(prompt) == 2 and isinstance(prompt[0], str):
        return prompt[0], prompt[1], (), {}
    return None, prompt, (), {}


def _images(data: Any) -> Sequence[Any]:
    if data is None:
        return ()
    if not isinstance(data, Mapping) or (unknown := data.keys() - {"image"}):
        what = ", ".join(map(str, unknown)) if isinstance(data, Mapping) else f"{data!r:.80}"
        raise InvalidRequestError(
            f'multi_modal_data has {what}: only images are taken, as {{"image": [...]}}'
        )
    images = data.get("image")
    if images is None:
        return ()
    return spread_images(images if isinstance(images, list | tuple) else [images])


def _check_plain(options: Mapping[str, Any]) -> None:
    try:
        msgspec.json.encode(options)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"mm_processor_kwargs={options!r:.80} must hold plain values only: {error}"
        ) from error


def _as_ids(ids: Any) -> list[int]:
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise InvalidRequestError(f"the prompt {ids!r:.80} is not a list of token ids")
    values = list(ids)
    if set(map(type, values)) <= {int}:
        return values
    try:
        return [index(value) for value in values]  # numpy integers
    except TypeError:
        wrong = next(value for value in values if not hasattr(value, "__index__"))
        raise InvalidRequestError(f"the prompt holds {wrong!r:.80}, not a token id") from None
