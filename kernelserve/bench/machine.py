"""What a measurement was made on: without these facts its figures mean nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["machine_facts", "peak_rss_mb"]

_PACKAGES = ("kernelserve", "torch", "transformers", "tokenizers", "msgspec", "pyzmq", "numpy")
_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "bf16",
    "i8mm",
)


def machine_facts() -> dict[str, Any]:
    """Processor, memory, graphics cards and versions. Imports nothing heavy."""
    cpu_info = _fields(Path("/proc/cpuinfo"))
    flags = set((cpu_info.get("flags") or cpu_info.get("Features") or "").split())
    memory_kib = int(_fields(Path("/proc/meminfo")).get("MemTotal", "0 kB").split()[0])
    return {
        "cpu": cpu_info.get("model name", platform.processor() or platform.machine()),
        "cores": len(os.sched_getaffinity(0)),
        "flags": [flag for flag in _FLAGS if flag in flags],
        "memory_gb": round(memory_kib / 2**20, 1),
        "gpus": _gpus(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def peak_rss_mb(pid: int) -> float | None:
    """Return the most memory that a process has held so far; None if it is gone or not ours."""
    peak = _fields(Path(f"/proc/{pid}/status")).get("VmHWM")
    return round(int(peak.split()[0]) / 1024, 1) if peak else None


def _fields(path: Path) -> dict[str, str]:
    """`name: value` lines of a file of /proc; the first of each name."""
    try:
        text = path.read_text()
    except OSError:
        return {}
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return fields


def _gpus() -> list[str]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    result = subprocess.run(
        [tool, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return result.stdout.splitlines() if result.returncode == 0 else []


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
