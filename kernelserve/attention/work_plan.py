"""Cuts the attention of one step into work items for the Triton kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from kernelserve.attention.metadata import AttentionMetadata
from kernelserve.attention.tile_shape import TileShape

__all__ = ["SEGMENT", "Launch", "WorkPlan"]

SEGMENT = 512
"""Long texts are cut at multiples of this, whatever else is in the step, so that their bits do not depend on it.
In 16 bits the parts cost 0.4 % of the traffic of K/V for each query head that shares them."""
_SPLIT_ROWS = 64
"""Requests with more rows have programs enough, and parts would cost them more than they win."""

Ints = NDArray[np.int64]


@dataclass(slots=True)
class Launch:
    """Work of one shape; the arrays are described in triton_kernels/attend.py and merge.py."""

    shape: TileShape
    items: torch.Tensor
    """int32 [n, 5]"""
    merges: torch.Tensor
    """int32 [m, 4]"""
    num_parts: int
    """Rows of partial results."""


@dataclass(slots=True)
class WorkPlan:
    """All launches of one step for one window size."""

    launches: list[Launch]
    limits: torch.Tensor | None
    """int32 [T]: the last position that each row sees; None: its own."""

    @classmethod
    def make(
        cls, metadata: AttentionMetadata, few: TileShape, many: TileShape, window: int | None
    ) -> WorkPlan:
        """Return the plan: requests whose rows fit into one tile of `few` take that shape, the others `many`."""
        device = metadata.block_table.device
        starts = np.asarray(metadata.query_start_locs, np.int64)
        query_lens, seq_lens = np.diff(starts), np.asarray(metadata.seq_len_list, np.int64)
        has_spans = any(metadata.spans or ())
        limits = _limits(metadata, query_lens, seq_lens) if has_spans else None
        launches = []
        for shape, chosen in (
            (few, query_lens <= few.tokens),
            (many, query_lens > few.tokens),
        ):
            requests = chosen.nonzero()[0]
            if len(requests):
                tiles = _Tiles.of(requests, starts, query_lens, seq_lens, shape.tokens)
                if limits is not None:
                    tiles.look_ahead(limits)
                launches.append(_launch(tiles, shape, window, device))
        on_device = None if limits is None else _to_device(limits, device)
        return cls(launches, on_device)


@dataclass(slots=True)
class _Tiles:
    """Consecutive rows of one request each; all arrays [n]."""

    request: Ints
    token: Ints
    """Place of the first row among those of the step."""
    first_row: Ints
    num_rows: Ints
    position: Ints
    """Of the first row."""
    end: Ints
    """Behind the last key that a row sees."""
    may_split: NDArray[np.bool_]

    @classmethod
    def of(
        cls, requests: Ints, starts: Ints, query_lens: Ints, seq_lens: Ints, tokens: int
    ) -> _Tiles:
        counts = -(-query_lens[requests] // tokens)
        request = np.repeat(requests, counts)
        first_row = _count_up(counts) * tokens
        num_rows = np.minimum(query_lens[request] - first_row, tokens)
        position = seq_lens[request] - query_lens[request] + first_row
        return cls(
            request=request,
            token=starts[request] + first_row,
            first_row=first_row,
            num_rows=num_rows,
            position=position,
            end=position + num_rows,
            may_split=query_lens[request] <= _SPLIT_ROWS,
        )

    def look_ahead(self, limits: Ints) -> None:
        """Let tiles reach as far as the rows of images see."""
        for tile, (token, count) in enumerate(zip(self.token, self.num_rows, strict=True)):
            self.end[tile] = limits[token : token + count].max() + 1


def _launch(tiles: _Tiles, shape: TileShape, window: int | None, device: torch.device) -> Launch:
    begin = np.zeros_like(tiles.position)
    if window is not None:
        begin = np.maximum(tiles.position - window + 1, 0) // shape.block_n * shape.block_n
    first_segment = begin // SEGMENT
    counts = np.where(tiles.may_split, (tiles.end - 1) // SEGMENT - first_segment + 1, 1)
    tile = np.repeat(np.arange(len(counts)), counts)  # of each item
    nth = _count_up(counts)
    segment_end = (first_segment[tile] + nth + 1) * SEGMENT
    is_last = nth == counts[tile] - 1
    is_split = counts > 1
    part_rows = np.where(is_split, counts * tiles.num_rows, 0)
    first_part = np.cumsum(part_rows) - part_rows
    items = np.stack(
        [
            tiles.request[tile],
            tiles.first_row[tile],
            np.maximum(begin[tile], np.where(nth > 0, segment_end - SEGMENT, 0)),
            np.where(is_last, tiles.end[tile], segment_end),
            np.where(is_split[tile], first_part[tile] + nth * tiles.num_rows[tile], -1),
        ],
        axis=1,
    )
    longest_first = np.argsort(items[:, 2] - items[:, 3], kind="stable")
    split_rows = np.where(is_split, tiles.num_rows, 0)
    owner, row = np.repeat(np.arange(len(counts)), split_rows), _count_up(split_rows)
    merges = np.stack(
        [tiles.token[owner] + row, first_part[owner] + row, counts[owner], tiles.num_rows[owner]],
        axis=1,
    )
    on_device = _to_device(np.concatenate([items[longest_first].ravel(), merges.ravel()]), device)
    return Launch(
        shape,
        on_device[: items.size].view(-1, 5),
        on_device[items.size :].view(-1, 4),
        int(part_rows.sum()),
    )


def _count_up(counts: Ints) -> Ints:
    """0 to n - 1 for each n of `counts`, one behind the other."""
    total = np.arange(int(counts.sum()))
    result: Ints = total - np.repeat(np.cumsum(counts) - counts, counts)
    return result


def _limits(metadata: AttentionMetadata, query_lens: Ints, seq_lens: Ints) -> Ints:
    """The last position that each row sees: its own, or the last of the image that it is in."""
    parts = []
    for request, (query_len, seq_len) in enumerate(zip(query_lens, seq_lens, strict=True)):
        positions = np.arange(seq_len - query_len, seq_len)
        limits = positions.copy()
        for low, high in metadata.spans_of(request):
            inside = (positions >= low) & (positions < high)
            limits[inside] = np.maximum(limits[inside], high - 1)
        parts.append(limits)
    return np.concatenate(parts)


def _to_device(array: Ints, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.int32)).to(device)
