"""Where the memory is: weights, KV cache, the two processes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kernelserve.protocol import EngineReady, SchedulerStats

__all__ = ["MemoryNumbers", "resident_bytes"]


@dataclass(frozen=True, slots=True)
class MemoryNumbers:
    """Bytes. The resident sizes are None where the system does not tell them."""

    weights: int
    kv_cache: int
    kv_cache_used: int
    """The part of it that requests hold."""
    engine_resident: int | None
    kernel_resident: int | None

    @classmethod
    def read(cls, ready: EngineReady, stats: SchedulerStats) -> MemoryNumbers:
        """Look at both processes now."""
        return cls(
            weights=ready.weight_bytes,
            kv_cache=ready.kv_cache_bytes,
            kv_cache_used=round(ready.kv_cache_bytes * stats.kv_cache_usage),
            engine_resident=resident_bytes(ready.pid),
            kernel_resident=resident_bytes(os.getpid()),
        )


def resident_bytes(pid: int) -> int | None:
    """Return how much memory a process has in RAM, None if it is gone or the system is not Linux."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return None
