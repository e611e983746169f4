"""What attention must know about a step: which rows belong to whom, and where their K/V live."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import torch

__all__ = ["AttentionMetadata"]

T = TypeVar("T")


@dataclass(slots=True)
class AttentionMetadata:
    """One flattened row of tokens, request after request.

    Request r owns rows query_start_loc[r] to query_start_loc[r+1]; they are the last tokens of the
    first seq_lens[r] tokens of its text:

        text of r    [ in the cache already . . . . . | rows of this step ]
        position      0                                  seq_lens[r] - 1

    Its position p lives in block block_table[r, p // block_size], place p % block_size. Entries of
    the block table behind the last used block point at the null block 0.
    """

    query_start_loc: torch.Tensor
    """int32 [num_reqs + 1]"""
    seq_lens: torch.Tensor
    """int32 [num_reqs]"""
    block_table: torch.Tensor
    """int32 [num_reqs, max_blocks]"""
    slot_mapping: torch.Tensor
    """int64 [num_tokens]: where the K/V of each row go."""
    query_start_locs: list[int]
    """query_start_loc on the host, so that a backend need not wait for a device."""
    seq_len_list: list[int]
    """seq_lens on the host."""
    block_size: int
    spans: list[list[tuple[int, int]]] | None = None
    """For each request the positions [first, last) of the images that rows of this step belong to. Such a row also
    sees the rest of its image, whose K/V are written in this step; a window still bounds how far back it sees.
    None: there are none."""
    _derived: dict[Hashable, Any] = field(default_factory=dict)

    @classmethod
    def build(
        cls,
        query_lens: list[int],
        seq_lens: list[int],
        block_table: torch.Tensor,
        slot_mapping: torch.Tensor,
        *,
        block_size: int,
        spans: list[list[tuple[int, int]]] | None = None,
    ) -> AttentionMetadata:
        """Return the metadata for so many rows a request, on the device of `block_table`."""
        starts = [0]
        for query_len in query_lens:
            starts.append(starts[-1] + query_len)
        device = block_table.device
        return cls(
            query_start_loc=torch.tensor(starts, dtype=torch.int32, device=device),
            seq_lens=torch.tensor(seq_lens, dtype=torch.int32, device=device),
            block_table=block_table,
            slot_mapping=slot_mapping,
            query_start_locs=starts,
            seq_len_list=list(seq_lens),
            block_size=block_size,
            spans=spans,
        )

    @property
    def num_reqs(self) -> int:
        """Requests in this step."""
        return len(self.seq_len_list)

    def spans_of(self, request: int) -> list[tuple[int, int]]:
        """The images of one request that rows of this step belong to."""
        return [] if self.spans is None else self.spans[request]

    @property
    def num_tokens(self) -> int:
        """Rows in this step."""
        return self.query_start_locs[-1]

    @property
    def query_lens(self) -> list[int]:
        """Rows of each request."""
        starts = self.query_start_locs
        return [end - start for start, end in pairwise(starts)]

    @property
    def max_query_len(self) -> int:
        """Rows of the request with the most rows."""
        return max(self.query_lens)

    @property
    def max_seq_len(self) -> int:
        """Tokens of the longest request, those of this step included."""
        return max(self.seq_len_list)

    def derive(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return make(), computed once a step: indices and masks are the same in every layer."""
        if key not in self._derived:
            self._derived[key] = make()
        value: T = self._derived[key]
        return value
