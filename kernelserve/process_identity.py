"""Tells whether the process that once had a pid is still the one that has it."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["is_process_alive", "process_start_time"]


def process_start_time(pid: int) -> float:
    """Return the start of a process in clock ticks since boot, 0 if it is gone or the system does not say."""
    fields = _stat_fields(pid)
    return float(fields[19]) if fields else 0.0


def is_process_alive(pid: int, start_time: float = 0.0) -> bool:
    """Whether `pid` runs and, if both starts are known, began at `start_time`. A zombie does not run."""
    if pid <= 0:
        return False
    fields = _stat_fields(pid)
    if fields:
        return fields[0] not in ("Z", "X") and start_time in (0.0, float(fields[19]))
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _stat_fields(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat from the state on; empty where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, UnicodeDecodeError):
        return []
    # The name in parentheses may hold anything, so count from its end.
    return text.rpartition(")")[2].split()
