"""Names the engines that run besides one: who may hold the memory that it lacks, and how to get it back."""

from __future__ import annotations

import os
from pathlib import Path

from kernelserve.client.registry import EngineDescriptor, list_engines

__all__ = ["describe_other_engines"]


def describe_other_engines(engine: EngineDescriptor) -> str:
    """Return a line for each engine of this user on this machine but `engine`; empty if there is none."""
    return "\n".join(
        _describe(other) for other in list_engines() if other.engine_id != engine.engine_id
    )


def _describe(engine: EngineDescriptor) -> str:
    return (
        f"Another engine runs: {engine.name!r} with {engine.model!r}, pid {engine.pid}, "
        f"started by {_owner(engine)}{_memory(engine.pid)}. "
        f"This ends it: ks.LLM.attach({engine.engine_id!r}).stop()"
    )


def _owner(engine: EngineDescriptor) -> str:
    if engine.owner_pid == os.getpid():
        return "this process"
    state = "still runs" if engine.owner_is_alive else "has ended"
    return f"process {engine.owner_pid}, which {state}"


def _memory(pid: int) -> str:
    """Say what the process holds of the main memory; nothing where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return ""
    kib = [int(line.split()[1]) for line in lines if line.startswith("VmRSS:")]
    return f", holds {kib[0] / 1024:,.0f} MiB of main memory" if kib else ""
