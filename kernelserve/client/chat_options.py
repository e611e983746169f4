"""The options of a chat call that go to the chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

__all__ = ["ChatMessage", "ChatOptions"]

ChatMessage = Mapping[str, Any]
"""`{"role": "user", "content": "..."}`, and whatever else the model's template reads."""


class ChatOptions(TypedDict, total=False):
    """Options of `chat`; what each does is told by `ClientTokenizer.render_chat_template`."""

    chat_template: str | None
    add_generation_prompt: bool | None
    continue_final_message: bool
    tools: Sequence[Mapping[str, Any]] | None
    documents: Sequence[Mapping[str, Any]] | None
    chat_template_kwargs: Mapping[str, Any] | None
    split_special_tokens: bool
