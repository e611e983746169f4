"""What forbids or favours single tokens: allowed ids, logit bias, min_tokens, bad words."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from kernelserve.sampling_params import SamplingParams
from kernelserve.worker.request_state import RequestState

__all__ = ["TokenMasks"]

_NEVER = -torch.inf


class TokenMasks:
    """The rows of a batch that forbid or favour tokens.

    Ids outside the vocabulary are left out: they must not reach the row of a neighbour.
    """

    def __init__(self, states: list[RequestState], vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._allowed_rows, self._forbidden = self._build_allowed(states)
        self._bias_rows, self._bias_ids, self._bias_values = self._build_bias(states)
        self._min_tokens = [
            (row, state, self._known(state.sampling_params.all_stop_token_ids))
            for row, state in enumerate(states)
            if state.sampling_params.min_tokens > len(state.output_token_ids)
        ]
        self._bad_words = [
            (row, state, [w for w in state.sampling_params.bad_words_token_ids if w])
            for row, state in enumerate(states)
            if state.sampling_params.bad_words_token_ids
        ]

    @staticmethod
    def wanted_by(states: list[RequestState]) -> bool:
        """Return whether any request needs this."""
        return any(_forbids_or_favours(state.sampling_params) for state in states)

    def apply(self, logits: Tensor) -> None:
        """Apply all but bad words to `logits` [R, vocab] in place."""
        if self._allowed_rows:
            for row, forbidden in zip(self._allowed_rows, self._forbidden, strict=True):
                logits[row].masked_fill_(forbidden, _NEVER)
        if len(self._bias_rows):
            # added, so that what is forbidden stays so however large the bias
            index = (self._bias_rows, self._bias_ids)
            logits.index_put_(index, self._bias_values, accumulate=True)
        for row, state, stop_ids in self._min_tokens:
            if len(state.output_token_ids) < state.sampling_params.min_tokens:
                logits[row, stop_ids] = _NEVER

    def apply_bad_words(self, logits: Tensor) -> None:
        """Forbid the last token of each bad word whose other tokens are the end of the output."""
        for row, state, words in self._bad_words:
            output = state.output_token_ids
            last = [word[-1] for word in words if _ends_with(output, word[:-1])]
            if last:
                logits[row, self._known(last)] = _NEVER

    def _build_allowed(self, states: list[RequestState]) -> tuple[list[int], list[Tensor]]:
        rows, masks = [], []
        for row, state in enumerate(states):
            if (allowed := state.sampling_params.allowed_token_ids) is not None:
                mask = torch.ones(self._vocab_size, dtype=torch.bool, device=self._device)
                mask[self._known(allowed)] = False
                rows.append(row)
                masks.append(mask)
        return rows, masks

    def _build_bias(self, states: list[RequestState]) -> tuple[Tensor, Tensor, Tensor]:
        triples = [
            (row, token_id, bias)
            for row, state in enumerate(states)
            for token_id, bias in (state.sampling_params.logit_bias or {}).items()
            if 0 <= token_id < self._vocab_size
        ]
        rows, ids, values = ([t[i] for t in triples] for i in range(3))
        return (
            torch.tensor(rows, dtype=torch.long, device=self._device),
            torch.tensor(ids, dtype=torch.long, device=self._device),
            torch.tensor(values, dtype=torch.float32, device=self._device),
        )

    def _known(self, token_ids: Iterable[int]) -> Tensor:
        ids = [i for i in token_ids if 0 <= i < self._vocab_size]
        return torch.tensor(ids, dtype=torch.long, device=self._device)


def _forbids_or_favours(params: SamplingParams) -> bool:
    return bool(
        params.allowed_token_ids is not None
        or params.logit_bias
        or params.min_tokens
        or params.bad_words_token_ids
    )


def _ends_with(tokens: list[int], tail: list[int]) -> bool:
    return not tail or tokens[-len(tail) :] == tail
