"""A process and all below it: what they have used, and what everything else on the machine has."""

from __future__ import annotations

import os
from pathlib import Path

from kernelserve.bench.machine import peak_rss_mb

__all__ = ["ProcessTree", "busy_seconds"]

_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _TIMES = 1, slice(11, 15)
"""Fields of /proc/PID/stat after the name: the parent; user and system time of it and of its children that ended."""
_IDLE = (3, 4)
_NOT_GUEST = slice(0, 8)


class ProcessTree:
    """The processes below one that is running. Reads /proc at each call."""

    def __init__(self, pid: int) -> None:
        """Nothing is read yet."""
        self._pid = pid

    def pids(self) -> list[int]:
        """Return the process first, then all below it that are there now."""
        children: dict[int, list[int]] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            pid = int(path.parent.name)
            if fields := _stat(pid):
                children.setdefault(int(fields[_PARENT]), []).append(pid)
        found = [self._pid]
        for pid in found:
            found += children.get(pid, [])
        return found

    def peak_mb(self) -> float:
        """Sum of the most memory that each has held so far."""
        return round(sum(peak_rss_mb(pid) or 0.0 for pid in self.pids()), 1)

    def cpu_seconds(self) -> float:
        """Processor time of all of them since they began."""
        return sum(sum(map(int, _stat(pid)[_TIMES])) for pid in self.pids()) / _TICKS


def busy_seconds() -> float:
    """Processor time of everything on the machine since it began, over all cores."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:][_NOT_GUEST]
    return sum(int(field) for i, field in enumerate(fields) if i not in _IDLE) / _TICKS


def _stat(pid: int) -> list[str]:
    """The fields behind the name, which may hold blanks and brackets; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
