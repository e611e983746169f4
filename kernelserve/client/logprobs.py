"""Turns the log-probabilities of the engine into what a caller reads."""

from __future__ import annotations

from collections.abc import Sequence

from kernelserve.client.tokenizer import ClientTokenizer
from kernelserve.outputs import Logprob, PositionLogprobs
from kernelserve.protocol import LogprobsLists

__all__ = ["LogprobsProcessor"]

_REPLACEMENT = "\ufffd"
_MAX_CONTEXT = 4
"""The longest character has four bytes, so four tokens are enough to complete one."""


class LogprobsProcessor:
    """Collects the log-probabilities of one answer. Without a tokenizer the entries have no text.

    Each dict lists the sampled token first, then the top-k. A sampled token that is among the
    top-k has its place there as rank, else the rank that the engine counted.
    """

    def __init__(self, tokenizer: ClientTokenizer | None, prompt_token_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._prompt_token_ids = prompt_token_ids
        self._context = list(prompt_token_ids[-_MAX_CONTEXT:])
        self.positions: list[PositionLogprobs] = []
        self.cumulative_logprob = 0.0

    def append(self, lists: LogprobsLists, num_tokens: int) -> None:
        """Take the first `num_tokens` rows: one for each token that belongs to the answer."""
        for row in _rows(lists)[:num_tokens]:
            token_ids, logprobs, _ = row
            self.positions.append(self._read_row(row, self._context))
            self.cumulative_logprob += logprobs[0]
            self._context = [*self._context, token_ids[0]][-_MAX_CONTEXT:]

    def read_prompt(self, lists: LogprobsLists) -> list[PositionLogprobs | None]:
        """Return one entry for each prompt token; the first is None."""
        prompt = self._prompt_token_ids
        entries: list[PositionLogprobs | None] = [None]
        for i, row in enumerate(_rows(lists), start=1):
            entries.append(self._read_row(row, prompt[max(0, i - _MAX_CONTEXT) : i]))
        return entries

    def _read_row(
        self, row: tuple[list[int], list[float], int], context: Sequence[int]
    ) -> PositionLogprobs:
        token_ids, logprobs, sampled_rank = row
        tokenizer = self._tokenizer
        text: str | None = None
        entry: PositionLogprobs = {}
        rank = sampled_rank
        for place, token_id in enumerate(token_ids, start=1):
            if tokenizer is not None:
                text = tokenizer.token_text(token_id)
                if text[-1:] == _REPLACEMENT:
                    text = _completed_character(tokenizer, token_id, context)
            entry[token_id] = Logprob(logprobs[place - 1], rank, text)
            rank = place
        return entry


def _rows(lists: LogprobsLists) -> list[tuple[list[int], list[float], int]]:
    return list(
        zip(lists.token_ids.tolist(), lists.logprobs.tolist(), lists.ranks.tolist(), strict=True)
    )


def _completed_character(tokenizer: ClientTokenizer, token_id: int, context: Sequence[int]) -> str:
    """Return the character that `token_id` completes after `context`, "" if it completes none."""
    for length in range(1, len(context) + 1):
        before = list(context[-length:])
        whole = tokenizer.decode([*before, token_id], skip_special_tokens=False)
        if not whole.endswith(_REPLACEMENT):
            prefix = tokenizer.decode(before, skip_special_tokens=False).rstrip(_REPLACEMENT)
            return whole[len(prefix) :] if whole.startswith(prefix) else ""
    return ""
