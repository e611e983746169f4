"""Finds stop strings in a growing text and says how much of its end must not be shown yet."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["StopStrings"]


class StopStrings:
    """The stop strings of one request, in the caller's order. Holds no state of the text."""

    def __init__(self, strings: Sequence[str], *, include_in_output: bool = False) -> None:
        self._strings = list(strings)
        self._include_in_output = include_in_output

    def __bool__(self) -> bool:
        return bool(self._strings)

    def find(self, text: str, *, searched: int, start: int) -> tuple[str, int] | None:
        """Return the string that matched and where to cut the text, or None.

        The first string in list order wins, not the first one in the text. A match may begin in
        the first `searched` characters, which hold no whole match, but not before `start`.
        """
        for string in self._strings:
            position = text.find(string, max(start, searched - len(string) + 1))
            if position >= 0:
                return string, position + (len(string) if self._include_in_output else 0)
        return None

    def num_held_back(self, text: str, *, start: int) -> int:
        """Return how many last characters of `text`, none before `start`, may begin a match."""
        if self._include_in_output:
            return 0
        longest = 0
        for string in self._strings:
            position = max(start, len(text) - len(string) + 1)
            while (position := text.find(string[0], position)) >= 0:
                if string.startswith(text[position:]):
                    longest = max(longest, len(text) - position)
                    break
                position += 1
        return longest
