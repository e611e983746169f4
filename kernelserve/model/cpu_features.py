"""What the CPU can do."""

from __future__ import annotations

from pathlib import Path

__all__ = ["cpu_computes_bfloat16"]


def cpu_computes_bfloat16() -> bool:
    """Whether it multiplies bfloat16 by itself."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return False
    lines = cpuinfo.read_text().splitlines()
    flags = next((line for line in lines if line.startswith("flags")), "").split()
    return "avx512_bf16" in flags or "amx_bf16" in flags
