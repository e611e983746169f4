"""How much memory is free on a device, container limits included."""

from __future__ import annotations

from pathlib import Path

import torch

__all__ = ["available_bytes", "format_bytes"]

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
        return int(torch.cuda.mem_get_info(device)[0])
    return min(_system_available(), _cgroup_available())


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
    import os

    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cgroup_available() -> int:
    free = 1 << 62
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
