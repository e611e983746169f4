"""The sampling options of a batch as tensors."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor

from kernelserve.worker.penalties import Penalties
from kernelserve.worker.request_state import RequestState
from kernelserve.worker.token_masks import TokenMasks

__all__ = ["SamplingMetadata"]


@dataclass(slots=True)
class SamplingMetadata:
    """Options of the R rows that are sampled in a step; None where no row uses an option.

    The options of drawing are for the rows `random_rows` only, in that order.
    """

    states: list[RequestState]
    token_masks: TokenMasks | None
    penalties: Penalties | None
    random_rows: list[int]
    """Rows that draw a token; all others are greedy."""
    temperature: Tensor
    """float32 [random]."""
    seeds: Tensor
    """int64 [random]."""
    min_p: Tensor | None
    top_k: Tensor | None
    top_p: Tensor | None
    logprob_rows: dict[int, list[int]]
    """Number of alternatives -> rows that want so many."""

    @classmethod
    def build(
        cls, states: list[RequestState], vocab_size: int, device: torch.device
    ) -> SamplingMetadata:
        """Collect the options of `states`, one row each."""
        random_rows = [i for i, s in enumerate(states) if not s.sampling_params.is_greedy]
        params = [states[i].sampling_params for i in random_rows]
        logprob_rows = defaultdict(list)
        for row, state in enumerate(states):
            if state.sampling_params.logprobs is not None:
                logprob_rows[state.sampling_params.logprobs].append(row)

        def floats(values: list[float], unused: float) -> Tensor | None:
            used = any(value != unused for value in values)
            return torch.tensor(values, dtype=torch.float32, device=device) if used else None

        top_k = [p.top_k for p in params]
        seeds = [states[i].seed for i in random_rows]
        return cls(
            states=states,
            token_masks=TokenMasks(states, vocab_size, device)
            if TokenMasks.wanted_by(states)
            else None,
            penalties=Penalties(states, vocab_size, device)
            if Penalties.wanted_by(states)
            else None,
            random_rows=random_rows,
            temperature=torch.tensor(
                [p.temperature for p in params], dtype=torch.float32, device=device
            ),
            seeds=torch.tensor(seeds, dtype=torch.long, device=device),
            min_p=floats([p.min_p for p in params], 0.0),
            top_k=torch.tensor(top_k, dtype=torch.long, device=device) if any(top_k) else None,
            top_p=floats([p.top_p for p in params], 1.0),
            logprob_rows=dict(logprob_rows),
        )
