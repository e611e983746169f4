"""Numbers with their units, as people read them."""

from __future__ import annotations

__all__ = ["NOTHING", "duration", "memory", "percent", "rate"]

NOTHING = "\N{EN DASH}"
"""Stands for a number that is not known."""


def duration(seconds: float | None) -> str:
    """Return `0.4 ms`, `84 ms`, `1.25 s`, `80 s`; a dash for None."""
    if seconds is None:
        return NOTHING
    if seconds < 0.01:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"


def memory(num_bytes: int | None) -> str:
    """Return `12 kB`, `257 MB`, `1.4 GB` (powers of 1,024); a dash for None."""
    if num_bytes is None:
        return NOTHING
    if num_bytes < 1 << 20:
        return f"{num_bytes / (1 << 10):.0f} kB"
    if num_bytes < 1 << 30:
        return f"{num_bytes / (1 << 20):.0f} MB"
    return f"{num_bytes / (1 << 30):.1f} GB"


def percent(share: float | None) -> str:
    """Return `64 %`, `0.4 %`; a dash for None."""
    if share is None:
        return NOTHING
    return f"{share * 100:.1f} %" if 0 < share < 0.01 else f"{share * 100:.0f} %"


def rate(per_second: float) -> str:
    """Return `0`, `12.3`, `1,240`."""
    return f"{per_second:,.0f}" if per_second >= 100 or per_second == 0 else f"{per_second:.1f}"
