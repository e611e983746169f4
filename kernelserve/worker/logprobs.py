"""Log-probabilities of chosen tokens and their best alternatives, ready for the wire."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernelserve.protocol import LogprobsLists
from kernelserve.wire import WireArray

__all__ = ["LogprobArrays", "gather_logprobs", "to_wire"]

LogprobArrays = tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]
"""token_ids [n, k + 1], logprobs [n, k + 1], ranks [n]: see LogprobsLists."""


def gather_logprobs(logprobs: Tensor, token_ids: Tensor, num_logprobs: int) -> LogprobArrays:
    """Pick the token and the `num_logprobs` best (-1: all) of each row of `logprobs` [n, vocab].

    The rank of a token is the count of values at or above its own: equals share the worst rank.
    """
    vocab_size = logprobs.shape[1]
    k = vocab_size if num_logprobs == -1 else min(num_logprobs, vocab_size)
    chosen_ids = token_ids[:, None]
    chosen = logprobs.gather(1, chosen_ids)
    ranks = (logprobs >= chosen).sum(dim=1)
    best, best_ids = logprobs.topk(k, dim=1)
    ids = torch.cat((chosen_ids, best_ids), dim=1).to("cpu", torch.int32)
    values = torch.cat((chosen, best), dim=1).to("cpu", torch.float32)
    return ids.numpy(), values.numpy(), ranks.to("cpu", torch.int32).numpy()


def to_wire(arrays: LogprobArrays, row: int | None = None) -> LogprobsLists:
    """Copy the arrays, or one row of them, into a struct that can be sent."""
    token_ids, logprobs, ranks = arrays
    if row is not None:
        one = slice(row, row + 1)
        token_ids, logprobs, ranks = token_ids[one], logprobs[one], ranks[one]
    return LogprobsLists(
        token_ids=WireArray("int32", token_ids.shape, token_ids.tobytes()),
        logprobs=WireArray("float32", logprobs.shape, logprobs.tobytes()),
        ranks=WireArray("int32", ranks.shape, ranks.tobytes()),
    )
