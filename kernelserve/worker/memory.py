"""How much memory a device has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

__all__ = ["DeviceMemory", "device_memory"]

_CGROUPS = (
    # limit, use, statistics, the statistics' name for file pages that are given back on demand
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


@dataclass(slots=True, frozen=True)
class DeviceMemory:
    """Bytes of a device, or of the container on a CPU."""

    total: int
    free: int


def device_memory(device: torch.device) -> DeviceMemory:
    """Return the memory of `device`, as seen by everyone who uses it."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return DeviceMemory(total=total, free=free)
    return host_memory()


def host_memory(
    meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")
) -> DeviceMemory:
    """Return the memory of this machine, or of the container if that is less."""
    fields = _read_fields(meminfo)
    total = fields["MemTotal:"] * 1024
    free = fields["MemAvailable:"] * 1024
    for limit_name, use_name, stat_name, reclaimable in _CGROUPS:
        limit = _read_int(cgroup / limit_name)
        use = _read_int(cgroup / use_name)
        if limit is not None and use is not None:
            use -= _read_fields(cgroup / stat_name).get(reclaimable, 0)
            total = min(total, limit)
            free = min(free, max(0, limit - use))
    return DeviceMemory(total=total, free=free)


def _read_int(path: Path) -> int | None:
    """Return the number in a file, or None if there is no such file or number (`max`)."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _read_fields(path: Path) -> dict[str, int]:
    """Return name -> number of the lines `name number ...` of a file; none if it cannot be read."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    words = (line.split() for line in lines)
    return {w[0]: int(w[1]) for w in words if len(w) > 1 and w[1].isdecimal()}
