"""The forms in which a caller may give a prompt, and their reading."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any

from kernelserve.client.tokenizer import ClientTokenizer
from kernelserve.errors import InvalidRequestError

__all__ = ["Prompt", "read_prompt"]

Prompt = str | Sequence[int] | Mapping[str, Any] | tuple[str, Sequence[int]]
"""Text, token ids, {"prompt": text}, {"prompt_token_ids": ids}, or text and its ids as a pair."""

_KEYS = {"prompt", "prompt_token_ids"}


def read_prompt(prompt: Prompt, tokenizer: ClientTokenizer | None) -> tuple[str | None, list[int]]:
    """Return the text, if there is one, and the token ids. Raises InvalidRequestError."""
    text, ids = _split(prompt)
    if ids is not None:
        return text, _as_ids(ids)
    if not isinstance(text, str):
        raise InvalidRequestError(
            f"the prompt {prompt!r:.80} is neither text nor token ids nor a dict with one of them"
        )
    if tokenizer is None:
        raise InvalidRequestError("this engine has no tokenizer: give the prompt as token ids")
    return text, tokenizer.encode(text)


def _split(prompt: Any) -> tuple[str | None, Any]:
    if isinstance(prompt, str):
        return prompt, None
    if isinstance(prompt, Mapping):
        unknown = prompt.keys() - _KEYS
        if unknown:
            raise InvalidRequestError(
                f"the prompt has {', '.join(sorted(map(str, unknown)))}: this engine takes text, "
                f"as {' or '.join(sorted(_KEYS))}"
            )
        return prompt.get("prompt"), prompt.get("prompt_token_ids")
    if isinstance(prompt, tuple) and len(prompt) == 2 and isinstance(prompt[0], str):
        return prompt[0], prompt[1]
    return None, prompt


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
