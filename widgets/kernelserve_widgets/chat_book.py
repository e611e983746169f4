"""Named conversations: what `--chat NAME` carries from cell to cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelserve.errors import InvalidRequestError
from kernelserve_widgets.history import count_of
from kernelserve_widgets.result import Result

__all__ = ["Chat", "ChatBook", "ChatTurn", "user_message"]


def user_message(text: str, images: Sequence[Any]) -> dict[str, Any]:
    """Return a message of the user: images first, then the text."""
    if not images:
        return {"role": "user", "content": text}
    parts: list[dict[str, Any]] = [{"type": "image", "image": image} for image in images]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


@dataclass(slots=True)
class ChatTurn:
    """A question and its answer."""

    user: str
    images: list[Any]
    cell: str | None
    """The front end's id of the cell that asked, None if it has none."""
    execution_count: int | None
    result: Result | None = None
    """None until the request is sent."""

    @property
    def message(self) -> dict[str, Any]:
        """The question as a message: its text, after its images if it has some."""
        return user_message(self.user, self.images)

    @property
    def answer(self) -> str | None:
        """What the model said, also if it was stopped; None while it runs or if it failed."""
        if self.result is None or not self.result.finished or self.result.error is not None:
            return None
        return self.result.text


@dataclass(slots=True)
class Chat:
    """A conversation. Asking again from the same cell replaces that cell's turn, it adds none."""

    name: str
    system: str | None = None
    turns: list[ChatTurn] = field(default_factory=list)

    def ask(
        self,
        user: str,
        cell: str | None,
        execution_count: int | None,
        images: Sequence[Any] = (),
    ) -> ChatTurn:
        """Enter a question. Raises InvalidRequestError while an earlier answer is still being written."""
        turn = ChatTurn(user, list(images), cell, execution_count)
        place = self._place_of(cell)
        for earlier in self.turns[:place]:
            if earlier.result is not None and not earlier.result.finished:
                raise InvalidRequestError(
                    f"the chat {self.name!r} still waits for the answer to {earlier.user!r:.40}: wait for it, or "
                    f"%abort {earlier.result.request_id}"
                )
        self.turns[place : place + 1] = [turn]
        return turn

    def messages(self, last: ChatTurn | None = None) -> list[dict[str, Any]]:
        """Return the messages up to and with the question of `last`; of all turns without it."""
        messages: list[dict[str, Any]] = []
        if self.system:
            messages.append({"role": "system", "content": self.system})
        for turn in self.turns:
            if turn is last:
                messages.append(turn.message)
                break
            if turn.answer is not None:
                messages.append(turn.message)
                messages.append({"role": "assistant", "content": turn.answer})
        return messages

    def drop(self, turn: ChatTurn) -> None:
        """Take back a question that could not be sent."""
        self.turns = [kept for kept in self.turns if kept is not turn]

    def describe(self) -> str:
        """Return the messages as text; the number of the cell shows what was run out of order."""
        lines = (
            [f"chat {self.name!r}"]
            if self.turns or self.system
            else [f"chat {self.name!r} is empty"]
        )
        if self.system:
            lines.append(f"      system: {self.system}")
        for turn in self.turns:
            number = f"[{turn.execution_count or ' '}]".rjust(5)
            pictures = f"({count_of(len(turn.images), 'image')}) " if turn.images else ""
            lines.append(f"{number} user: {pictures}{turn.user}")
            lines.append(f"      assistant: {self._describe_answer(turn)}")
        return "\n".join(lines)

    def _place_of(self, cell: str | None) -> int:
        for place, turn in enumerate(self.turns):
            if cell is not None and turn.cell == cell:
                return place
        return len(self.turns)

    @staticmethod
    def _describe_answer(turn: ChatTurn) -> str:
        if turn.answer is not None:
            return turn.answer
        failed = turn.result is not None and turn.result.finished
        return "(failed: not part of the conversation)" if failed else "(being written)"


class ChatBook:
    """The conversations of a notebook by name."""

    def __init__(self) -> None:
        self._chats: dict[str, Chat] = {}

    @property
    def names(self) -> list[str]:
        """Names in use, oldest first."""
        return list(self._chats)

    def get(self, name: str) -> Chat:
        """Return a conversation, made on first use."""
        return self._chats.setdefault(name, Chat(name))

    def find(self, name: str) -> Chat:
        """Return a conversation that exists. Raises InvalidRequestError with the names that there are."""
        if name not in self._chats:
            known = ", ".join(self._chats) or "none"
            raise InvalidRequestError(f"there is no chat {name!r} (known: {known})")
        return self._chats[name]

    def reset(self, name: str) -> None:
        """Forget a conversation."""
        self.find(name)
        del self._chats[name]
