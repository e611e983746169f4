"""Reads what may be given once or as a list, one each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kernelserve.client.chat_options import ChatMessage
from kernelserve.client.chat_prompt import ChatPrompt
from kernelserve.client.prompt import Prompt
from kernelserve.errors import InvalidRequestError

__all__ = ["split_conversations", "split_prompts", "spread"]


def split_prompts(prompts: Any) -> tuple[list[Prompt], bool]:
    """Return the prompts, and whether they were given as a list. Raises InvalidRequestError.

    One prompt is text, a dict, a (text, ids) pair, a rendered chat or a list of ids; anything else is a list of them.
    """
    pair = isinstance(prompts, tuple) and len(prompts) == 2 and not isinstance(prompts[1], str)
    if isinstance(prompts, str | Mapping | ChatPrompt) or pair:
        return [prompts], False
    if not isinstance(prompts, Iterable):
        raise InvalidRequestError(f"prompts={prompts!r:.80} must be a prompt or a list of prompts")
    batch = list(prompts)
    if batch and all(isinstance(item, int) for item in batch):
        return [batch], False
    return batch, True


def split_conversations(
    messages: Sequence[ChatMessage] | Sequence[Sequence[ChatMessage]],
) -> tuple[Sequence[Sequence[ChatMessage]], bool]:
    """Return the conversations, and whether they were given as a list. One conversation is a list of messages."""
    is_list = bool(messages) and isinstance(messages[0], Sequence)
    return (messages if is_list else [messages]), is_list  # type: ignore[return-value, list-item]


def spread(value: Any, count: int, name: str) -> list[Any]:
    """Give each of `count` prompts its value: the one for all, or one each. Raises InvalidRequestError."""
    if not isinstance(value, Sequence):
        return [value] * count
    if len(value) != count:
        raise InvalidRequestError(f"{len(value)} {name} for {count} prompts: give one, or one each")
    return list(value)
