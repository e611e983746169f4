"""Marks what in a text looks like a token, so that it stays text."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kernelserve.client.chat_prompt import IMAGE_SLOT, LITERAL_MARK

__all__ = ["LiteralMarker"]


class LiteralMarker:
    """Puts a mark before each place where one of some tokens begins: what follows is only a character."""

    def __init__(self, tokens: Iterable[str]) -> None:
        known = [token for token in tokens if token]
        any_token = "|".join(map(re.escape, known))
        self._pattern = re.compile(f"(?={any_token})" if any_token else r"(?!)")
        self._beginnings = {token[:size] for token in known for size in range(1, len(token))}
        self._longest = max(map(len, self._beginnings), default=0)

    def mark(self, text: str) -> str:
        """Return `text` with marks, also before a token that only the text behind it could complete."""
        plain = text.replace(LITERAL_MARK, "").replace(IMAGE_SLOT, "")
        marked = self._pattern.sub(LITERAL_MARK, plain)
        end = max(0, len(marked) - self._longest)
        tail = (
            LITERAL_MARK + marked[i] if marked[i:] in self._beginnings else marked[i]
            for i in range(end, len(marked))
        )
        return marked[:end] + "".join(tail)
