"""Which request is drawn on which row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernelserve_widgets.history import RequestLife

__all__ = ["RowLayout"]

_MAX_NAMED = 24
_MAX_ROWS = 48


@dataclass(slots=True)
class RowLayout:
    """Few requests get a row each; many share rows, one after the other.

    r0 |=====|              |=r0=| |=r3===|
    r1   |====|               |=r1==| |=r4|
    r2          |==|              |=r2=|
    """

    rows: dict[str, int] = field(default_factory=dict)
    """Request id -> row, 0 at the top."""
    num_rows: int = 0
    is_shared: bool = False
    num_hidden: int = 0
    """Requests for which no row was left."""

    @classmethod
    def of(cls, lives: Sequence[RequestLife], now: float) -> RowLayout:
        """Give rows to the lives, which are in the order in which they began."""
        if len(lives) <= _MAX_NAMED:
            rows = {life.request_id: row for row, life in enumerate(lives)}
            return cls(rows, len(rows))
        layout = cls(is_shared=True)
        ends: list[float] = []
        for life in lives:
            end = life.ended_at if life.ended_at is not None else now
            row = next((i for i, free in enumerate(ends) if free <= life.queued_at), len(ends))
            if row == _MAX_ROWS:
                layout.num_hidden += 1
                continue
            ends[row : row + 1] = [end]
            layout.rows[life.request_id] = row
        layout.num_rows = len(ends)
        return layout
