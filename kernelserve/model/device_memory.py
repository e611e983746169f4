"""How much memory is free on a device, limits of the container and of the process included."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["available_bytes", "format_bytes", "free_main_memory"]

_NO_LIMIT = 1 << 62
_CGROUP_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
    ),
)


def available_bytes(device: torch.device) -> int:
    """Return what can be allocated on `device` now."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    return free_main_memory()


def free_main_memory() -> int:
    """Return the bytes that this process can still take of the machine's own memory. Imports no torch."""
    return min(_system_available(), _cgroup_available(), _address_space_left())


def format_bytes(count: float) -> str:
    """Return `count` for a human, as in 1.25 GiB."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def _system_available() -> int:
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cgroup_available() -> int:
    free = _NO_LIMIT
    for limit_file, usage_file, stat_file in _CGROUP_LIMITS:
        try:
            limit = Path(limit_file).read_text().strip()
            usage = int(Path(usage_file).read_text())
            stat = dict(line.split() for line in Path(stat_file).read_text().splitlines())
        except (OSError, ValueError):
            continue
        if limit != "max":
            # Cached file pages count as used but are given back when somebody needs memory.
            reclaimable = int(stat.get("inactive_file", 0)) + int(stat.get("active_file", 0))
            free = min(free, max(0, int(limit) - usage + reclaimable))
    return free


def _address_space_left() -> int:
    """What `ulimit -v`, as some clusters set it, leaves to this process."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    statm = Path("/proc/self/statm")
    if limit == resource.RLIM_INFINITY or not statm.exists():
        return _NO_LIMIT
    used = int(statm.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return max(0, limit - used)
