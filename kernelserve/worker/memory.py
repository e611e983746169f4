"""How much memory a device has."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from kernelserve.model.device_memory import available_bytes

__all__ = ["DeviceMemory", "device_memory"]

_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


@dataclass(slots=True, frozen=True)
class DeviceMemory:
    """Bytes of a device; on a CPU of the container, if there is one."""

    total: int
    free: int
    """What nobody uses, other processes included."""


def device_memory(device: torch.device) -> DeviceMemory:
    """Return the memory of `device` as it is now."""
    free = available_bytes(device)
    if device.type == "cuda":
        return DeviceMemory(total=torch.cuda.mem_get_info(device)[1], free=free)
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [path.read_text().strip() for path in _CGROUP_LIMITS if path.exists()]
    total = min([physical, *(int(text) for text in limits if text.isdecimal())])
    return DeviceMemory(total=total, free=free)
