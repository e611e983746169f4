"""How often each token has occurred in a request: the state that penalties need."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["TokenCounts"]


class TokenCounts:
    """Counts of one request, brought up to date from its token lists.

    Ids outside the vocabulary are left out: they cannot be sampled, and must not count for another.
    """

    def __init__(self, prompt_token_ids: list[int], vocab_size: int, device: torch.device) -> None:
        self.in_prompt = torch.zeros(vocab_size, dtype=torch.bool, device=device)
        """bool [vocab]: occurs in the prompt."""
        self.in_output = torch.zeros(vocab_size, dtype=torch.float32, device=device)
        """float32 [vocab]: times generated."""
        self._num_counted = 0
        ids = self._known(prompt_token_ids)
        self.in_prompt[ids] = True

    def update(self, output_token_ids: list[int]) -> None:
        """Count the tokens that were added to `output_token_ids` since the last call."""
        if self._num_counted < len(output_token_ids):
            ids = self._known(output_token_ids[self._num_counted :])
            self.in_output.index_add_(0, ids, torch.ones(len(ids), device=ids.device))
            self._num_counted = len(output_token_ids)

    def _known(self, token_ids: list[int]) -> Tensor:
        size = len(self.in_prompt)
        ids = [i for i in token_ids if 0 <= i < size]
        return torch.tensor(ids, dtype=torch.long, device=self.in_prompt.device)
