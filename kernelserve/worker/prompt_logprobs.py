"""Log-probabilities of a prompt, gathered chunk by chunk."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from kernelserve.protocol import LogprobsLists
from kernelserve.worker.logprobs import LogprobArrays, gather_logprobs, to_wire

__all__ = ["PromptLogprobs"]


class PromptLogprobs:
    """Collects the rows of prompt positions 1..n-1 of one request.

    The logits at position i tell of token i + 1. So the last position of the prompt adds nothing,
    and a last chunk of that one position is empty.
    """

    def __init__(self, prompt_token_ids: list[int], num_logprobs: int) -> None:
        self._token_ids = prompt_token_ids
        self._num_logprobs = num_logprobs
        self._parts: list[LogprobArrays] = []
        self._num_done = 0

    def num_rows(self, start: int, count: int) -> int:
        """Return how many of the `count` positions from `start` on tell of a prompt token."""
        return max(0, min(start + count, len(self._token_ids) - 1) - start)

    def add(self, start: int, logits: Tensor) -> None:
        """Take the `logits` [rows, vocab] of the positions from `start` on."""
        assert start == self._num_done, f"prompt position {start}, but {self._num_done} are done"
        rows = len(logits)
        targets = self._token_ids[start + 1 : start + 1 + rows]
        ids = torch.tensor(targets, dtype=torch.long, device=logits.device)
        logprobs = logits.float().log_softmax(dim=-1)
        self._parts.append(gather_logprobs(logprobs, ids, self._num_logprobs))
        self._num_done += rows

    def to_wire(self) -> LogprobsLists:
        """Return all rows; the prompt must be complete."""
        assert self._num_done == len(self._token_ids) - 1
        if not self._parts:
            width = max(0, self._num_logprobs) + 1
            empty = np.zeros((0, width), np.int32)
            return to_wire((empty, empty.astype(np.float32), np.zeros(0, np.int32)))
        ids, values, ranks = zip(*self._parts, strict=True)
        return to_wire((np.concatenate(ids), np.concatenate(values), np.concatenate(ranks)))
