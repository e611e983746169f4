"""The inputs of one forward pass, as arrays on the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelserve.worker.request_state import RequestState

__all__ = ["StepInputs"]


@dataclass(slots=True)
class StepInputs:
    """One flattened row of T tokens of N requests, request after request, in the plan's order."""

    states: list[RequestState]
    rows: NDArray[np.int64]
    """Row of each request in the InputBatch [N]."""
    query_lens: NDArray[np.int64]
    """Tokens of each request in this step [N]."""
    seq_lens: NDArray[np.int64]
    """Tokens of each request whose K/V exist after this step [N]."""
    input_ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    slot_mapping: NDArray[np.int64]
    """Where the K/V of each token go [T]."""
    block_table: NDArray[np.int32]
    """[N, most blocks that one request of this step uses]"""
    sampled: NDArray[np.int64]
    """Indices of the requests that get a token: those that have no uncomputed token left."""

    @property
    def last_indices(self) -> NDArray[np.int64]:
        """Index in the flattened row of the last token of each request [N]."""
        result: NDArray[np.int64] = np.cumsum(self.query_lens) - 1
        return result
