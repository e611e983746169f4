"""One player of a comparison: a process that loads an engine and runs a repetition when told."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from kernelserve.bench.peer_error import PeerError
from kernelserve.bench.process_tree import ProcessTree, busy_seconds

__all__ = ["PeerProcess"]

_ERROR = re.compile(r"\b\w*(?:Error|Exception): .+")
_LINE_BYTES = 1 << 20
_LOAD_TIMEOUT_S = 900  # a peer may compile
_ANSWER_TIMEOUT_S = 600
_STOP_TIMEOUT_S = 30


class PeerProcess:
    """Speaks the lines of kernelserve/bench/peers/player.py. Used as `async with`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        folder: Path,
        variables: Mapping[str, str],
        log: Path,
    ) -> None:
        """Nothing is started yet. `folder` is where it runs, `log` gets what its libraries print."""
        self.name = name
        self.what = name
        """What it is, in its own words, once it is loaded."""
        self._command = list(command)
        self._folder = folder
        self._variables = dict(variables)
        self._log = log
        self._started = 0.0

    async def __aenter__(self) -> PeerProcess:
        """Start the process; raise PeerError if it does not load."""
        self._started = time.perf_counter()
        with self._log.open("wb") as log:
            self._process: Process = await anyio.open_process(
                self._command,
                stderr=log,
                cwd=self._folder,
                env=self._variables,
                start_new_session=True,  # Ctrl-C is for us: we end it in order
            )
        assert self._process.stdout is not None
        self._tree = ProcessTree(self._process.pid)
        self._lines = BufferedByteReceiveStream(self._process.stdout)
        try:
            self.what = (await self._read(_LOAD_TIMEOUT_S, "load"))["ready"]
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stop()

    async def run(self, repetition: int) -> dict[str, Any]:
        """Run one repetition; return its figures, and what the whole process tree has needed.

        `peak_mb` is memory so far, `since_start_s` the time since the process began, `others_cores` how many cores
        everything else on the machine kept busy meanwhile.
        """
        assert self._process.stdin is not None
        began, busy, own = time.perf_counter(), busy_seconds(), self._tree.cpu_seconds()
        # If it is dead, its output has ended, which the reading below reports.
        with suppress(anyio.BrokenResourceError):
            await self._process.stdin.send(f"{repetition}\n".encode())
        figures = await self._read(_ANSWER_TIMEOUT_S, "answer")
        ended = time.perf_counter()
        others = busy_seconds() - busy - (self._tree.cpu_seconds() - own)
        return figures | {
            "peak_mb": self._tree.peak_mb(),
            "since_start_s": round(ended - self._started, 3),
            "others_cores": round(max(others, 0.0) / (ended - began), 2),
        }

    async def _read(self, timeout: float, verb: str) -> dict[str, Any]:
        try:
            with anyio.fail_after(timeout):
                line = await self._lines.receive_until(b"\n", _LINE_BYTES)
        except TimeoutError:
            raise PeerError(
                f"{self.name} did not {verb} in {timeout:.0f} s: see {self._log}"
            ) from None
        except (anyio.IncompleteRead, anyio.EndOfStream):
            raise PeerError(f"{self.name} did not {verb}: {self._last_words()}") from None
        message: dict[str, Any] = json.loads(line)
        return message

    def _last_words(self) -> str:
        """The last error in the log, else its last line: a library may print more while it goes down."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        errors = [found[0] for line in lines if (found := _ERROR.search(line))]
        words = (errors or [line.strip() for line in lines] or ["it said nothing"])[-1]
        return f"{words} (all of it: {self._log})"

    async def _stop(self) -> None:
        """End its input, which ends it; kill it if it does not listen."""
        with anyio.CancelScope(shield=True):
            assert self._process.stdin is not None
            await self._process.stdin.aclose()
            with anyio.move_on_after(_STOP_TIMEOUT_S):
                await self._process.wait()
            if self._process.returncode is None:
                for pid in self._tree.pids():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                await self._process.wait()
            await self._lines.aclose()
