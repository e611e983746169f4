"""A rendered chat that still knows which of its text is the caller's, and where its images go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["IMAGE_SLOT", "LITERAL_MARK", "ChatPrompt", "plain_text"]

LITERAL_MARK = "\ufdd0"  # noncharacters: no text contains them
"""Before a character that is only this character: no special token begins with it."""
IMAGE_SLOT = "\ufdd1"
"""The place of an image, where the template knows none."""


@dataclass(frozen=True, slots=True, eq=False)
class ChatPrompt:
    """What `render_chat` returns for a model that takes images; `generate` and `submit` take it as a prompt."""

    marked_text: str
    images: tuple[Any, ...] = ()
    """As the caller gave them."""

    @property
    def text(self) -> str:
        """What the model reads, with one placeholder for each image."""
        return plain_text(self.marked_text, "<image>")


def plain_text(marked_text: str, placeholder: str) -> str:
    """Return the text without marks."""
    return marked_text.replace(LITERAL_MARK, "").replace(IMAGE_SLOT, placeholder)
