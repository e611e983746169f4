"""Repetition, frequency and presence penalties."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelserve.sampling_params import SamplingParams
from kernelserve.worker.request_state import RequestState
from kernelserve.worker.token_counts import TokenCounts

__all__ = ["Penalties"]


class Penalties:
    """The rows of a batch that have penalties. Token counts exist for those requests only."""

    def __init__(self, states: list[RequestState], vocab_size: int, device: torch.device) -> None:
        rows = [i for i, state in enumerate(states) if _has_penalty(state.sampling_params)]
        self._states = [states[i] for i in rows]
        for state in self._states:
            if state.token_counts is None:
                state.token_counts = TokenCounts(state.prompt_token_ids, vocab_size, device)
        params = [state.sampling_params for state in self._states]
        self._rows = torch.tensor(rows, dtype=torch.long, device=device)
        self._repetition = _column([p.repetition_penalty for p in params], device)
        self._frequency = _column([p.frequency_penalty for p in params], device)
        self._presence = _column([p.presence_penalty for p in params], device)

    @staticmethod
    def wanted_by(states: list[RequestState]) -> bool:
        """Return whether any request has a penalty."""
        return any(_has_penalty(state.sampling_params) for state in states)

    def apply(self, logits: Tensor) -> None:
        """Change `logits` [R, vocab] in place.

        Repetition divides positive and multiplies negative logits of what occurs in prompt or
        output; frequency (times the count) and presence are subtracted for output tokens only.
        """
        counts = self._counts()
        in_output = torch.stack([c.in_output for c in counts])
        in_prompt = torch.stack([c.in_prompt for c in counts])
        values = logits[self._rows]
        occurs = in_prompt | (in_output > 0)
        repeated = torch.where(values > 0, values / self._repetition, values * self._repetition)
        values = torch.where(occurs, repeated, values)
        values -= self._frequency * in_output
        values -= self._presence * (in_output > 0)
        logits[self._rows] = values

    def _counts(self) -> list[TokenCounts]:
        result = []
        for state in self._states:
            assert state.token_counts is not None
            state.token_counts.update(state.output_token_ids)
            result.append(state.token_counts)
        return result


def _has_penalty(params: SamplingParams) -> bool:
    return (
        params.repetition_penalty != 1
        or params.frequency_penalty != 0
        or params.presence_penalty != 0
    )


def _column(values: list[float], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device)[:, None]
