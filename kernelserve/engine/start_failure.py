"""Turns what went wrong while starting into the message that clients get."""

from __future__ import annotations

import traceback

from kernelserve.errors import START_ERRORS, EngineStartError, InvalidConfigError
from kernelserve.protocol import EngineFailure

__all__ = ["describe_start_failure"]

_CODES = {error_type: code for code, error_type in START_ERRORS.items()}


def describe_start_failure(error: BaseException, phase: str) -> EngineFailure:
    """Return the code, one readable line and the traceback of `error`."""
    message = str(error) or type(error).__name__
    if isinstance(error, EngineStartError):
        code, phase, message = _CODES.get(type(error), "start"), error.phase or phase, error.message
    elif isinstance(error, InvalidConfigError):
        code = "config"
    elif isinstance(error, ImportError):
        code, message = "import", f"the engine process lacks a package: {message}"
    elif isinstance(error, MemoryError):
        code, message = "weights_memory", f"the machine has too little memory: {message}"
    else:
        code, message = "start", f"{type(error).__name__}: {message}"
    return EngineFailure(
        code=code,
        phase=phase,
        message=message,
        traceback="".join(traceback.format_exception(error)),
    )
