"""Every error that kernelserve raises.

    KernelserveError
    |-- InvalidConfigError            a setting is wrong (also a ValueError)
    |-- InvalidRequestError           a request is wrong; only its sender is affected (also a ValueError)
    |-- BatchError                    some requests of a list failed; it has the answers of the others
    |   `-- RefusedBatchError         each of these was wrong (also an InvalidRequestError)
    |-- ProtocolError                 the two ends of a socket do not understand each other
    |-- KernelBuildError              our C++ kernels cannot be compiled here; the engine goes on without them
    `-- EngineError
        |-- EngineStartError          the engine did not start; names the phase, the cause and the log
        |   |-- ModelNotFoundError    no such folder, file or hub id
        |   |-- ModelFilesError       the model is there, but a file of it is missing or damaged
        |   |-- UnsupportedModelError the architecture cannot run here
        |   |-- WeightsMemoryError    the weights do not fit
        |   |-- KVCacheMemoryError    the weights fit, the KV cache does not
        |   |-- EngineImportError     the engine process lacks a package
        |   |-- EngineConfigError     a setting that only the loaded model can judge (also an InvalidConfigError)
        |   |-- EngineProtocolError   the engine speaks another version (also a ProtocolError)
        |   `-- EngineCrashError      the engine process ended by a signal or without a word
        |-- EngineRequestError        one request failed inside the engine; the engine goes on
        `-- EngineDeadError           the engine is gone or hangs; nothing more will come from it
            |-- EngineUnloadedError   it ended by itself because it had been idle
            `-- EngineRestartedError  it was restarted; what ran in it is lost, the next use finds the new one

A start failure crosses the process boundary as a `code`; `START_ERRORS` maps it back to its class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelserve.outputs import RequestOutput

__all__ = [
    "START_ERRORS",
    "BatchError",
    "EngineConfigError",
    "EngineCrashError",
    "EngineDeadError",
    "EngineError",
    "EngineImportError",
    "EngineProtocolError",
    "EngineRequestError",
    "EngineRestartedError",
    "EngineStartError",
    "EngineUnloadedError",
    "InvalidConfigError",
    "InvalidRequestError",
    "KVCacheMemoryError",
    "KernelBuildError",
    "KernelserveError",
    "ModelFilesError",
    "ModelNotFoundError",
    "ProtocolError",
    "RefusedBatchError",
    "UnsupportedModelError",
    "WeightsMemoryError",
]


class KernelserveError(Exception):
    """Base of every error raised by kernelserve."""


class InvalidConfigError(KernelserveError, ValueError):
    """A setting has a value that cannot work."""


class InvalidRequestError(KernelserveError, ValueError):
    """A request cannot be served as asked; other requests are not affected."""


class BatchError(KernelserveError):
    """Some requests of a list could not be answered. The others were.

    `errors` has the error of each that failed by its place in the list, `outputs` an output for each of the others and
    None for these, in the order of the list.
    """

    def __init__(
        self,
        message: str,
        *,
        errors: Mapping[int, KernelserveError] | None = None,
        outputs: Sequence[RequestOutput | None] = (),
    ) -> None:
        super().__init__(message)
        self.errors = dict(errors or {})
        self.outputs = list(outputs)


class RefusedBatchError(BatchError, InvalidRequestError):
    """The same, where each that failed was refused before it was sent."""


class ProtocolError(KernelserveError):
    """A message on a socket could not be understood."""


class KernelBuildError(KernelserveError):
    """Our C++ kernels cannot be compiled or loaded here; the engine then computes with torch."""


class EngineError(KernelserveError):
    """Base of everything that goes wrong in or around the engine process."""


class EngineStartError(EngineError):
    """The engine did not become ready.

    `phase` is what it was doing, `hint` what else may help, a line each, `log_tail` the last lines of its log,
    `log_path` where all of it is. The first line of the message can be read alone; the log follows only in the fields.
    """

    def __init__(
        self,
        message: str,
        *,
        phase: str = "",
        hint: str = "",
        log_tail: str = "",
        log_path: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.phase = phase
        self.hint = hint
        self.log_tail = log_tail
        self.log_path = log_path

    def __str__(self) -> str:
        where = f" (while: {self.phase})" if self.phase else ""
        hint = f"\n{self.hint}" if self.hint else ""
        log = f"\nLog of the engine: {self.log_path}" if self.log_path else ""
        return f"{self.message}{where}{hint}{log}"


class ModelNotFoundError(EngineStartError):
    """There is no such folder, file or hub id."""


class ModelFilesError(EngineStartError):
    """The model is there, but one of its files is missing or damaged."""


class UnsupportedModelError(EngineStartError):
    """The architecture or file format cannot run in this engine; the message says why."""


class WeightsMemoryError(EngineStartError):
    """The weights do not fit into the memory of the device."""


class KVCacheMemoryError(EngineStartError):
    """The weights fit, but the KV cache does not; the message gives all the numbers."""


class EngineImportError(EngineStartError):
    """The engine process could not import a package."""


class EngineConfigError(EngineStartError, InvalidConfigError):
    """A setting cannot work with this model or on this machine."""


class EngineProtocolError(EngineStartError, ProtocolError):
    """The running engine is of a version with another protocol; the message gives both numbers."""


class EngineCrashError(EngineStartError):
    """The engine process ended by a signal or without an explanation."""


class EngineRequestError(EngineError):
    """One request failed inside the engine. Other requests and the engine are unharmed."""


class EngineDeadError(EngineError):
    """The engine has ended or no longer answers. A new one must be started."""


class EngineUnloadedError(EngineDeadError):
    """The engine ended by itself because it had been idle for as long as it was told."""


class EngineRestartedError(EngineDeadError):
    """The engine was ended to be started again. Requests that ran are lost; the next use finds the new one."""


START_ERRORS: dict[str, type[EngineStartError]] = {
    "start": EngineStartError,
    "model_not_found": ModelNotFoundError,
    "model_files": ModelFilesError,
    "unsupported_model": UnsupportedModelError,
    "weights_memory": WeightsMemoryError,
    "kv_cache_memory": KVCacheMemoryError,
    "import": EngineImportError,
    "config": EngineConfigError,
    "protocol": EngineProtocolError,
    "crash": EngineCrashError,
}
