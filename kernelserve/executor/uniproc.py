"""One worker in this process. Importing this module does not import torch; making one does."""

from __future__ import annotations

import time

from kernelserve.config import EngineConfig
from kernelserve.core.scheduler_output import ModelRunnerOutput, SchedulerOutput
from kernelserve.errors import EngineImportError
from kernelserve.executor.executor import Progress
from kernelserve.model.head_start import HeadStart
from kernelserve.torch_import import import_torch

__all__ = ["UniProcExecutor"]


class UniProcExecutor:
    """Calls the worker directly. Raises an EngineStartError subclass when the model cannot run."""

    def __init__(self, config: EngineConfig, progress: Progress) -> None:
        start = time.perf_counter()
        progress("import", None)
        head_start = HeadStart(config, lambda folder: progress("import", None, folder))
        try:
            import_torch()
            import torch

            from kernelserve.worker.worker import Worker
        except ImportError as error:
            raise EngineImportError(
                f"the engine cannot import {error.name}: {error}", phase="import"
            ) from error
        seconds = time.perf_counter() - start
        if config.num_threads is not None:
            torch.set_num_threads(config.num_threads)
        self._inference_mode = torch.inference_mode
        with self._inference_mode():
            self._worker: Worker | None = Worker(config, progress, head_start)
        self.model_info = self._worker.model_info
        self.model_info.load_seconds = {"import": seconds, **self.model_info.load_seconds}

    @property
    def num_known_requests(self) -> int:
        """Requests that the runner still holds state of."""
        return 0 if self._worker is None else self._worker.runner.num_known_requests

    @property
    def num_encoder_embeds(self) -> int:
        """Embeddings of images that the runner keeps."""
        return 0 if self._worker is None else self._worker.runner.num_encoder_embeds

    def execute_model(self, plan: SchedulerOutput) -> None:
        """Run the forward pass of `plan`."""
        assert self._worker is not None, "the executor is shut down"
        with self._inference_mode():
            self._worker.execute_model(plan)

    def sample_tokens(self) -> ModelRunnerOutput:
        """Choose the tokens of the step begun by `execute_model`."""
        assert self._worker is not None, "the executor is shut down"
        with self._inference_mode():
            return self._worker.sample_tokens()

    def shutdown(self) -> None:
        """Free the model and its memory."""
        if self._worker is not None:
            self._worker.shutdown()
            self._worker = None
