"""The text of one answer: decoded, searched for stop strings, shown as far as it is certain."""

from __future__ import annotations

from kernelserve.client.detokenizer import IncrementalDetokenizer
from kernelserve.client.stop_strings import StopStrings

__all__ = ["AnswerText"]


class AnswerText:
    """Joins detokenizer and stop strings, token by token: steps of any size give the same text.

    Text of the first `min_tokens` tokens is never part of a match. After a match `text` is cut
    and final.
    """

    def __init__(
        self, detokenizer: IncrementalDetokenizer, stop_strings: StopStrings, *, min_tokens: int = 0
    ) -> None:
        self.text = ""
        self._detokenizer = detokenizer
        self._stop_strings = stop_strings
        self._tokens_before_search = min_tokens
        self._search_start = 0
        self._num_shown = 0
        self._finished = False

    def feed(self, token_id: int) -> str | None:
        """Take one token; return the stop string that it completed, if any."""
        chunk = self._detokenizer.feed(token_id)
        searched = len(self.text)
        if chunk:
            self.text += chunk
        if self._tokens_before_search > 0:
            self._tokens_before_search -= 1
            self._search_start = len(self.text) + len(self._detokenizer.unsettled_text)
            return None
        if not self._stop_strings:
            return None
        unsettled = self._detokenizer.unsettled_text
        return self._search(self.text + unsettled, searched) if chunk or unsettled else None

    def finish(self, *, search: bool = True) -> str | None:
        """Add what was held back; return the stop string that was in it, if any and asked for."""
        searched = len(self.text)
        chunk = self._detokenizer.flush()
        self.text += chunk
        self._finished = True
        may_match = search and chunk and self._tokens_before_search <= 0
        return self._search(self.text, searched) if may_match else None

    def visible(self) -> str:
        """Return the text so far, without an end that may become a stop string."""
        return self.text[: self._num_visible()]

    def take_new(self) -> str:
        """Return the visible text that was not returned before."""
        end = self._num_visible()
        new = self.text[self._num_shown : end]
        self._num_shown = end
        return new

    def _search(self, text: str, searched: int) -> str | None:
        match = self._stop_strings.find(text, searched=searched, start=self._search_start)
        if match is None:
            return None
        string, end = match
        self.text = text[:end]
        self._finished = True
        return string

    def _num_visible(self) -> int:
        if self._finished or not self._stop_strings:
            return len(self.text)
        held_back = self._stop_strings.num_held_back(self.text, start=self._search_start)
        return len(self.text) - held_back
