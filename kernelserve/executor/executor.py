"""The contract between the engine core and whatever runs the model. Imports no torch."""

from __future__ import annotations

from typing import Protocol

from kernelserve.core.scheduler_output import ModelRunnerOutput, SchedulerOutput
from kernelserve.worker.model_info import ModelInfo, Progress

__all__ = ["Executor", "ModelInfo", "Progress"]


class Executor(Protocol):
    """Runs plans, one at a time, in two calls: `execute_model`, then `sample_tokens` exactly once.

    A constructor loads the model and raises an EngineStartError subclass when it cannot. Whatever
    the two calls raise means that the engine cannot go on; a failure of one request is in
    `ModelRunnerOutput.errors`.
    """

    model_info: ModelInfo

    def execute_model(self, plan: SchedulerOutput) -> None:
        """Start the forward pass of `plan`; may return before it is done.

        An empty plan only drops requests; `sample_tokens` must follow it too.
        """

    def sample_tokens(self) -> ModelRunnerOutput:
        """Choose the tokens of the step begun by `execute_model`, and wait for them."""

    def shutdown(self) -> None:
        """Free the model and its memory. Safe to call twice."""
