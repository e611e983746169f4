"""Turns the end of an engine into the error that its user reads."""

from __future__ import annotations

import os
from pathlib import Path

from kernelserve.client.engine_process import EngineProcess
from kernelserve.client.other_engines import describe_other_engines
from kernelserve.client.registry import EngineDescriptor
from kernelserve.errors import (
    START_ERRORS,
    EngineCrashError,
    EngineDeadError,
    EngineImportError,
    EngineStartError,
    EngineUnloadedError,
    KVCacheMemoryError,
    WeightsMemoryError,
)
from kernelserve.protocol import EngineDead, EngineFailure

__all__ = ["crash_error", "dead_error", "read_log_tail", "start_error"]

_TAIL_BYTES = 16_384
_PHASE = ": Phase: "
_IMPORT_ERRORS = ("ModuleNotFoundError:", "ImportError:")
_MEMORY_ERRORS = (WeightsMemoryError, KVCacheMemoryError)


def read_log_tail(log_path: str, num_lines: int = 40) -> str:
    """Return the last lines of a log, empty if there is none."""
    try:
        with Path(log_path).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-num_lines:])


def start_error(failure: EngineFailure, engine: EngineDescriptor) -> EngineStartError:
    """Make the error of an engine that said why it could not start.

    One that lacks memory also names the other engines of this user: a forgotten one may hold what is missing.
    """
    error_type = START_ERRORS.get(failure.code, EngineStartError)
    lacks_memory = issubclass(error_type, _MEMORY_ERRORS)
    return error_type(
        failure.message,
        phase=failure.phase,
        hint=describe_other_engines(engine) if lacks_memory else "",
        log_tail=failure.traceback or read_log_tail(engine.log_path),
        log_path=engine.log_path,
    )


def crash_error(process: EngineProcess, phase: str) -> EngineStartError:
    """Make the error of an engine that ended while starting without saying why."""
    log_path = process.descriptor.log_path
    tail = read_log_tail(log_path)
    last_line = tail.rpartition("\n")[2]
    # It may have ended before it could tell, but not before it could write.
    phases = [line.partition(_PHASE)[2] for line in tail.splitlines() if _PHASE in line]
    details = {"phase": phases[-1] if phases else phase, "log_tail": tail, "log_path": log_path}
    if last_line.startswith(_IMPORT_ERRORS):
        return EngineImportError(f"the engine process lacks a package: {last_line}", **details)
    reason = f": {last_line}" if "Error: " in last_line else ""
    message = f"the engine process {process.describe_end()} before it was ready{reason}"
    return EngineCrashError(message, **details)


def dead_error(notice: EngineDead, log_path: str) -> EngineDeadError:
    """Make the error of an engine that said goodbye."""
    error_type = EngineUnloadedError if notice.code == "unloaded" else EngineDeadError
    return error_type(f"{notice.message}\nLog of the engine: {log_path}")
