"""How the torch backend walks through one step: which rows attend together, over which slots."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernelserve.attention.metadata import AttentionMetadata

__all__ = ["DecodeGroup", "PrefillPiece", "StepPlan"]

_MAX_PIECE_ROWS = 1024
_MAX_GROUP_SLOTS = 16_384
_MAX_PADDING = 2


@dataclass(slots=True)
class DecodeGroup:
    """Requests with one row each and similar lengths, padded to the longest."""

    rows: torch.Tensor
    """int64 [n]: places in the flattened row of tokens."""
    slots: torch.Tensor
    """int64 [n, L]. Padding repeats a slot that the request has written, so it is never NaN."""
    mask: torch.Tensor | None
    """[n, 1, 1, L], 0 or -inf; None: nothing to hide."""


@dataclass(slots=True)
class PrefillPiece:
    """Consecutive rows of one request."""

    start: int
    end: int
    slots: torch.Tensor
    """int64 [L]: everything that some row of the piece sees."""
    mask: torch.Tensor | None
    """[q, L], 0 or -inf; None: row i sees slots 0 to i, and there are as many slots as rows."""


@dataclass(slots=True)
class StepPlan:
    """The groups and pieces of one step for one window size."""

    decodes: list[DecodeGroup]
    prefills: list[PrefillPiece]

    @classmethod
    def make(cls, metadata: AttentionMetadata, window: int | None, dtype: torch.dtype) -> StepPlan:
        """Return the plan of layers with this window whose masks are added in `dtype`."""
        decoding: list[int] = []
        prefills: list[PrefillPiece] = []
        for request, query_len in enumerate(metadata.query_lens):
            if query_len == 1:
                decoding.append(request)
            else:
                prefills += _prefill_pieces(metadata, request, window, dtype)
        groups = _group_by_length(metadata.seq_len_list, decoding, window)
        decodes = [_decode_group(metadata, group, window, dtype) for group in groups]
        return cls(decodes, prefills)


def _group_by_length(
    seq_lens: list[int], requests: list[int], window: int | None
) -> list[list[int]]:
    """Split requests so that padding to the longest of a group at most doubles the work."""
    groups: list[list[int]] = []
    longest = 0
    for request in sorted(requests, key=lambda r: -seq_lens[r]):
        length = min(seq_lens[request], window or seq_lens[request])
        fits = (
            bool(groups)
            and longest <= _MAX_PADDING * length + 64
            and (len(groups[-1]) + 1) * longest <= _MAX_GROUP_SLOTS
        )
        if fits:
            groups[-1].append(request)
        else:
            groups.append([request])
            longest = length
    return groups


def _decode_group(
    metadata: AttentionMetadata, requests: list[int], window: int | None, dtype: torch.dtype
) -> DecodeGroup:
    device = metadata.block_table.device
    lens = [metadata.seq_len_list[r] for r in requests]
    first = [max(0, length - window) if window else 0 for length in lens]
    width = max(length - low for length, low in zip(lens, first, strict=True))
    ends = torch.tensor(lens, device=device)[:, None]  # [n, 1]
    lows = torch.tensor(first, device=device)[:, None]
    positions = lows + torch.arange(width, device=device)  # [n, L]
    hidden = positions >= ends
    positions = torch.minimum(positions, ends - 1)
    tables = metadata.block_table[torch.tensor(requests, device=device)]
    rows = [metadata.query_start_locs[r] for r in requests]
    uneven = len({length - low for length, low in zip(lens, first, strict=True)}) > 1
    return DecodeGroup(
        rows=torch.tensor(rows, device=device),
        slots=_slots(tables, positions, metadata.block_size),
        mask=_additive(hidden, dtype)[:, None, None, :] if uneven else None,
    )


def _prefill_pieces(
    metadata: AttentionMetadata, request: int, window: int | None, dtype: torch.dtype
) -> list[PrefillPiece]:
    device = metadata.block_table.device
    start, end = metadata.query_start_locs[request], metadata.query_start_locs[request + 1]
    offset = metadata.seq_len_list[request] - end  # position of row i is i + offset
    pieces = []
    for low_row in range(start, end, _MAX_PIECE_ROWS):
        high_row = min(low_row + _MAX_PIECE_ROWS, end)
        first_query, last = low_row + offset, high_row + offset
        first = max(0, first_query - window + 1) if window else 0
        spans = [s for s in metadata.spans_of(request) if s[0] < last and first_query < s[1]]
        end_of_keys = max([last, *(high for _, high in spans)])
        positions = torch.arange(first, end_of_keys, device=device)  # [L]
        mask = None
        if first_query > 0 or (window and last > window) or spans:
            queries = torch.arange(first_query, last, device=device)[:, None]
            hidden = positions > queries
            for low, high in spans:
                inside = (queries >= low) & (queries < high)
                hidden &= ~(inside & (positions < high))
            if window:
                hidden |= positions <= queries - window
            mask = _additive(hidden, dtype)
        slots = _slots(metadata.block_table[request], positions, metadata.block_size)
        pieces.append(PrefillPiece(low_row, high_row, slots, mask))
    return pieces


def _slots(table: torch.Tensor, positions: torch.Tensor, block_size: int) -> torch.Tensor:
    blocks = table.long().gather(-1, positions // block_size)
    return blocks * block_size + positions % block_size


def _additive(hidden: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(
        hidden, float("-inf")
    )
