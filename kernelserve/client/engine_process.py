"""The client's hold on an engine process: to see it end, to end it, and to leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading

from kernelserve.client.lifeline_pipe import LifelinePipe
from kernelserve.client.process_watch import ProcessWatch
from kernelserve.client.registry import EngineDescriptor

__all__ = ["EngineProcess"]

_TERM_AFTER_S = 2.0
_KILL_AFTER_S = 3.0


class EngineProcess:
    """An engine that this process has launched (`popen` and `pipe` are given) or has found running."""

    def __init__(
        self,
        descriptor: EngineDescriptor,
        popen: subprocess.Popen[bytes] | None = None,
        pipe: LifelinePipe | None = None,
    ) -> None:
        self.descriptor = descriptor
        self._popen = popen
        self._pipe = pipe
        self.watch = ProcessWatch(descriptor.pid, descriptor.pid_start_time, popen)

    @property
    def is_child(self) -> bool:
        """Whether this process has launched it."""
        return self._popen is not None

    @property
    def dies_with_this_process(self) -> bool:
        """Whether it must not outlive us."""
        return self.is_child and self.descriptor.lifetime == "kernel"

    def describe_end(self) -> str:
        """Say in a few words how the process ended."""
        code = self._popen.poll() if self._popen is not None else None
        if code is None:
            return "ended"
        if code >= 0:
            return f"ended with exit code {code}"
        name = signal.Signals(-code).name
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return f"was ended by {name}{hint}"

    async def end(self, *, patient: bool) -> None:
        """See that the process ends: wait for it if it was asked to, then SIGTERM, then SIGKILL its group."""
        if patient and await self.watch.wait_for(_TERM_AFTER_S):
            return
        self._signal(signal.SIGTERM)
        if await self.watch.wait_for(_KILL_AFTER_S if patient else 0.5):
            return
        if self.is_child:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.descriptor.pid, signal.SIGKILL)
        self._signal(signal.SIGKILL)
        await self.watch.wait_for(_KILL_AFTER_S)

    def close(self) -> None:
        """Let go of the process; if it has ended, reap it and remove what it left."""
        if self._pipe is not None:
            self._pipe.close()
        self.watch.close()
        if not self.watch.is_alive:
            shutil.rmtree(self.descriptor.run_dir, ignore_errors=True)
        if self._popen is None:
            return
        if self._popen.poll() is None:
            # A child that outlives the connection must still be reaped some day; not when Python ends.
            with contextlib.suppress(RuntimeError):
                threading.Thread(target=self._popen.wait, name="reaper", daemon=True).start()

    def _signal(self, signum: signal.Signals) -> None:
        if self.watch.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.descriptor.pid, signum)
