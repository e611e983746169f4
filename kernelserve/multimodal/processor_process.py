"""The process that runs a model's image processor, as its client sees it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import threading
from typing import IO, Any

from kernelserve.child_environment import child_environment
from kernelserve.errors import EngineRequestError, InvalidRequestError, ProtocolError
from kernelserve.multimodal.frame_pipe import FramePipe
from kernelserve.multimodal.processor_messages import (
    ImageTask,
    ProcessedImage,
    ProcessorReply,
    ProcessorSpec,
)

__all__ = ["ProcessorProcess"]

_START_TIMEOUT_S = 120.0
_TASK_TIMEOUT_S = 60.0
_LOG_TAIL_BYTES = 2000
_QUIET = {
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "HF_HUB_OFFLINE": "1",
}


class ProcessorProcess:
    """Starts with the first use or with `prepare`, and again after it ended. Thread-safe.

    It ends when it is closed or this process ends.

    A process of its own, because transformers in the kernel would bring torch with it, and because neither a crash
    nor the memory of an image library is the kernel's or the engine's business.
    """

    def __init__(self, spec: ProcessorSpec) -> None:
        self._spec = spec
        self._lock = threading.Lock()
        self._popen: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._placeholder = ""
        self._closed = threading.Event()

    @property
    def pid(self) -> int | None:
        """Of the process, if it has been started."""
        return self._popen.pid if self._popen else None

    def prepare(self) -> None:
        """Begin to start it, so that the first image need not wait. If that fails, whoever uses it hears why."""
        threading.Thread(target=self._prepare, name="image-processor-start", daemon=True).start()

    def placeholder(self) -> str:
        """Return what stands for one image in a prompt. Raises EngineRequestError if the processor cannot load."""
        with self._lock:
            if not self._placeholder:
                self._exchange(None)
            return self._placeholder

    def process(self, task: ImageTask) -> ProcessedImage:
        """Process one image. Raises InvalidRequestError if the processor refuses it, EngineRequestError if it fails."""
        with self._lock:
            reply = self._exchange(task)
        if reply.image is None:
            raise InvalidRequestError(
                f"the model's image processor refuses the image: {reply.failure}"
            )
        return reply.image

    def close(self) -> None:
        """End the process for good. Whoever waits for it gets an EngineRequestError."""
        self._closed.set()
        if (popen := self._popen) is not None:
            popen.kill()  # frees the lock if it is busy
        with self._lock:
            self._end()

    def _prepare(self) -> None:
        with contextlib.suppress(EngineRequestError):
            self.placeholder()

    def _exchange(self, task: ImageTask | None) -> ProcessorReply:
        """Send a task and return its reply. Whatever interrupts this ends the process: its answer would be lost."""
        try:
            if task is not None and self._popen is not None:
                # It may have ended by itself a moment ago, because it was idle.
                with contextlib.suppress(BrokenPipeError, EOFError):
                    return self._call(task, _TASK_TIMEOUT_S)
            self._start()
            return ProcessorReply() if task is None else self._call(task, _TASK_TIMEOUT_S)
        except (OSError, EOFError, ProtocolError) as error:
            tail = self._log_tail()
            self._end()
            raise EngineRequestError(
                f"the image processor process ended: {str(error) or type(error).__name__}{tail}"
            ) from error
        except BaseException:
            self._end()
            raise

    def _start(self) -> None:
        self._end()
        if self._closed.is_set():
            raise EngineRequestError("the engine was closed, and with it its image processor")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (closed in _end)
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", "kernelserve.multimodal"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=child_environment() | _QUIET,
            bufsize=0,
            start_new_session=True,
        )
        if self._closed.is_set():
            self._popen.kill()  # `close` has found nothing to kill, and waits for the lock
        reply = self._call(self._spec, _START_TIMEOUT_S)
        if reply.failure is not None:
            raise EngineRequestError(
                f"the image processor in {self._spec.processor_dir} cannot be used: {reply.failure}"
            )
        self._placeholder = reply.placeholder

    def _call(self, message: Any, timeout_s: float) -> ProcessorReply:
        assert self._popen is not None
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        pipe = FramePipe(self._popen.stdout.fileno(), self._popen.stdin.fileno(), ProcessorReply)
        pipe.send(message)
        return pipe.receive(timeout_s)

    def _log_tail(self) -> str:
        if self._log is None:
            return ""
        size = self._log.seek(0, 2)
        self._log.seek(max(0, size - _LOG_TAIL_BYTES))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f" (it said: {lines[-1]})" if lines else ""

    def _end(self) -> None:
        popen, self._popen = self._popen, None
        log, self._log = self._log, None
        if popen is not None:
            popen.kill()
            popen.wait()
            for stream in (popen.stdin, popen.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        if log is not None:
            log.close()
