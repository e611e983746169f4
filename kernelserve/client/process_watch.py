"""Waits for the end of a process that need not be a child, under asyncio and trio."""

from __future__ import annotations

import os
import subprocess

import anyio

from kernelserve.process_identity import is_process_alive

__all__ = ["ProcessWatch"]

_POLL_S = 0.1
_SOON_S = 0.01


class ProcessWatch:
    """A pidfd where the system has them, which tells at once and cannot mean another process; else polling."""

    def __init__(
        self, pid: int, start_time: float, popen: subprocess.Popen[bytes] | None = None
    ) -> None:
        self._popen = popen
        self._pid = pid
        self._start_time = start_time
        self._fd = -1
        if hasattr(os, "pidfd_open"):
            try:
                self._fd = os.pidfd_open(pid)
            except OSError:
                # Gone already, or no such call: polling finds out.
                self._fd = -1

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs. Reaps a child that does not."""
        if self._popen is not None:
            return self._popen.poll() is None
        return is_process_alive(self._pid, self._start_time)

    async def wait(self) -> None:
        """Return when the process has ended."""
        while self.is_alive:
            if self._fd < 0:
                await anyio.sleep(_POLL_S)
            else:
                await anyio.wait_readable(self._fd)

    async def wait_for(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds; return whether the process has ended."""
        with anyio.move_on_after(timeout):
            # Another task may be in `wait`, and a descriptor has room for one.
            while self.is_alive:  # noqa: ASYNC110
                await anyio.sleep(_SOON_S)
        return not self.is_alive

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
