"""One player of a comparison: a process that loads an engine and runs a repetition when told."""

from __future__ import annotations

import json
import os
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

from kernelserve.bench.machine import peak_rss_mb
from kernelserve.bench.peer_error import PeerError

__all__ = ["PeerProcess"]

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
        """Run one repetition; return its figures, and the memory that the whole process tree has needed so far."""
        assert self._process.stdin is not None
        await self._process.stdin.send(f"{repetition}\n".encode())
        figures = await self._read(_ANSWER_TIMEOUT_S, "answer")
        since_start = time.perf_counter() - self._started
        return figures | {"peak_mb": self._peak_mb(), "since_start_s": round(since_start, 3)}

    def _peak_mb(self) -> float:
        peaks = [peak_rss_mb(pid) or 0.0 for pid in _tree(self._process.pid)]
        return round(sum(peaks), 1)

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
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return f"{lines[-1].strip()} (all of it: {self._log})" if lines else f"see {self._log}"

    async def _stop(self) -> None:
        """End its input, which ends it; kill it if it does not listen."""
        with anyio.CancelScope(shield=True):
            assert self._process.stdin is not None
            await self._process.stdin.aclose()
            with anyio.move_on_after(_STOP_TIMEOUT_S):
                await self._process.wait()
            if self._process.returncode is None:
                for pid in _tree(self._process.pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                await self._process.wait()
            await self._lines.aclose()


def _tree(pid: int) -> list[int]:
    """Return the process and all below it that are there now."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # "pid (name) state parent ...", and a name may have blanks and brackets
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found
