"""What a client can ask of a running engine by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelserve.engine.client_table import ClientTable
from kernelserve.engine.engine_core import EngineCore
from kernelserve.errors import InvalidRequestError
from kernelserve.protocol import SchedulerStats, StepRecord, UtilityOutput, UtilityRequest

__all__ = ["EngineUtilities"]


class EngineUtilities:
    """The methods of `UtilityRequest`. They run in the busy loop, between two steps."""

    def __init__(self, core: EngineCore, clients: ClientTable) -> None:
        self._core = core
        self._clients = clients
        self._methods: dict[str, Callable[..., Any]] = {
            "ping": self._ping,
            "stats": self._stats,
            "reset_prefix_cache": self._reset_prefix_cache,
            "reset_encoder_cache": core.scheduler.reset_encoder_cache,
            "step_records": self._step_records,
            "configure": self._configure,
            "kv_cache_map": core.scheduler.kv_cache_map,
            "check_integrity": core.scheduler.check_integrity,
            "shutdown": self._shutdown,
        }

    def call(self, request: UtilityRequest) -> UtilityOutput:
        """Answer a call. Whatever it raises is its failure alone."""
        try:
            method = self._methods.get(request.method)
            if method is None:
                raise InvalidRequestError(f"there is no utility {request.method!r}")
            return UtilityOutput(request.call_id, method(*request.args))
        except Exception as error:
            return UtilityOutput(request.call_id, failure=f"{type(error).__name__}: {error}")

    def _ping(self) -> dict[str, Any]:
        return {
            "steps": self._core.num_steps,
            "time": self._core.clock(),
            "requests": len(self._core.scheduler.requests),
            "clients": len(self._clients.indices),
        }

    def _stats(self) -> SchedulerStats:
        return self._core.scheduler.stats()

    def _reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        return self._core.scheduler.reset_prefix_cache(
            reset_running_requests=reset_running_requests
        )

    def _step_records(self, since_step: int = 0) -> list[StepRecord]:
        return [record for record in self._core.scheduler.step_records if record.step >= since_step]

    def _configure(self, changes: dict[str, Any]) -> None:
        self._core.scheduler.configure(**changes)

    def _shutdown(self) -> None:
        """The input thread has thrown the switch; this is only the answer."""
