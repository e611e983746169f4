"""Where the memory is: weights, KV cache, the two processes."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
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

    def after(self, stats: SchedulerStats) -> MemoryNumbers:
        """Return the same with newer gauges, without looking at the processes again."""
        return replace(self, kv_cache_used=round(self.kv_cache * stats.kv_cache_usage))


def resident_bytes(pid: int) -> int | None:
    """Return how much memory a process has in RAM, None if it is gone or the system is not Linux."""
    try:
        statm = Path(f"/proc/{pid}/statm").read_text()
    except OSError:
        return None
    return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")
