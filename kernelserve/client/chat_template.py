"""Renders chat templates as transformers does: sandboxed Jinja2 with the names they expect."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelserve.client.chat_prompt import IMAGE_SLOT
from kernelserve.errors import InvalidRequestError

__all__ = ["ChatMessage", "ChatTemplate"]

ChatMessage = Mapping[str, Any]
"""`role`, `content` (text, or a list of parts) and whatever else the template reads."""

_CONTINUE_TAG = "\ufddeCONTINUE\ufdde "  # noncharacters: no text contains them
_ITERATES_CONTENT = re.compile(r"for\s+\w+\s+in\s+\w+(\.content|\[['\"]content['\"]\])")
_Rewrite = Callable[[str], str] | None


class ChatTemplate:
    """One compiled template. Raises InvalidRequestError if it does not compile."""

    def __init__(self, source: str) -> None:
        # Jinja2 is a third of the time to import the client, and plain prompts do without.
        from kernelserve.client.template_environment import compile_template

        try:
            self._template = compile_template(source)
        except Exception as error:
            raise InvalidRequestError(f"the chat template does not compile: {error}") from error
        self._knows_parts = bool(_ITERATES_CONTENT.search(source))

    def render(
        self,
        messages: Sequence[ChatMessage],
        *,
        add_generation_prompt: bool,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        rewrite: _Rewrite = None,
    ) -> str:
        """Return the prompt text; `rewrite` is applied to each text that the caller brought.

        Raises InvalidRequestError for bad messages and for whatever the template raises.
        """
        if continue_final_message and add_generation_prompt:
            raise InvalidRequestError(
                "continue_final_message=True goes on with the last message, "
                "add_generation_prompt=True opens a new one: set only one of them"
            )
        try:
            chat = _plain_messages(messages, rewrite)
            if not self._knows_parts:
                chat = [_join_text_parts(message) for message in chat]
            if continue_final_message:
                chat[-1] = _mark_end(chat[-1])
            text = self._template.render(
                _plain(dict(variables or {})),
                messages=chat,
                tools=_plain(tools, rewrite),
                documents=_plain(documents, rewrite),
                add_generation_prompt=add_generation_prompt,
            )
        except InvalidRequestError:
            raise
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise InvalidRequestError(
                f"the chat template failed on these messages: {reason}"
            ) from error
        return _cut_at_mark(text) if continue_final_message else text


def _plain_messages(messages: Sequence[ChatMessage], rewrite: _Rewrite) -> list[dict[str, Any]]:
    chat = _plain(messages, rewrite)
    if not isinstance(chat, list) or not chat:
        raise InvalidRequestError("a chat needs a list of at least one message")
    for message in chat:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise InvalidRequestError(
                f"the message {message!r:.80} is not a dict with a 'role' and a 'content'"
            )
    # Clients of other APIs send tool_calls=None, which templates would print as "None".
    return [{key: value for key, value in m.items() if value is not None} for m in chat]


def _plain(value: Any, rewrite: _Rewrite = None) -> Any:
    """Copy `value` as plain JSON data: a template can neither change nor call the caller's."""
    if isinstance(value, str):
        text = str.__str__(value)  # enums and the like
        return rewrite(text) if rewrite else text
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Mapping):
        return {
            _plain(key): _plain(item, None if key == "role" else rewrite)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(item, rewrite) for item in value]
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    if callable(dump := getattr(value, "model_dump", None)):  # message objects of API clients
        return _plain(dump(), rewrite)
    raise InvalidRequestError(
        f"a chat holds a {type(value).__name__}: only text, numbers, lists and dicts are understood"
    )


def _join_text_parts(message: dict[str, Any]) -> dict[str, Any]:
    """Make one string of texts and images, each in a line of its own, for templates that know only strings."""
    parts = message.get("content")
    if not isinstance(parts, list) or not parts:
        return message
    texts = [_part_text(part) for part in parts]
    if None in texts:
        return message
    return message | {"content": "\n".join(text for text in texts if text is not None)}


def _part_text(part: Any) -> str | None:
    if not isinstance(part, dict):
        return None
    if part.get("type") == "image":
        return IMAGE_SLOT
    text = part.get("text")
    return text if part.get("type") == "text" and isinstance(text, str) else None


def _mark_end(message: dict[str, Any]) -> dict[str, Any]:
    """Return `message` with a mark at the end of its text, where the prompt is to end."""
    content = message.get("content")
    if isinstance(content, str):
        return message | {"content": content + _CONTINUE_TAG}
    parts = list(content) if isinstance(content, list) else []
    for i in reversed(range(len(parts))):
        if isinstance(parts[i], dict) and isinstance(parts[i].get("text"), str):
            parts[i] = parts[i] | {"text": parts[i]["text"] + _CONTINUE_TAG}
            return message | {"content": parts}
    raise InvalidRequestError("continue_final_message=True, but the last message has no text")


def _cut_at_mark(text: str) -> str:
    place = text.rfind(_CONTINUE_TAG.strip())
    if place < 0:
        raise InvalidRequestError(
            "continue_final_message=True, but the chat template leaves out the end of the message"
        )
    kept = text[:place]
    # A template that trims the message has trimmed the space behind the mark.
    return kept if text.startswith(_CONTINUE_TAG, place) else kept.rstrip()
