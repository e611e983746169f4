"""Engine processes with a fake model, and the proof that nothing of ours is left after each test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelserve.process_identity import is_process_alive

ROOT = Path(__file__).parents[2]


@pytest.fixture
def anyio_backend() -> str:
    """Tests that depend on the event loop are marked to run on trio too."""
    return "asyncio"


@pytest.fixture(autouse=True)
def runtime_folder(monkeypatch) -> Iterator[Path]:
    """Folders of the test's own. At the end no process, socket, folder or shared memory of ours is left."""
    folder = Path(tempfile.mkdtemp(prefix="ks-"))
    shared_memory = _shared_memory()
    threads_before = _children()
    monkeypatch.setenv("KERNELSERVE_RUNTIME_DIR", str(folder / "rt"))
    monkeypatch.setenv("KERNELSERVE_CACHE_DIR", str(folder / "cache"))
    (folder / "rt").mkdir(mode=0o700)
    yield folder / "rt"
    try:
        assert_nothing_left(folder / "rt")
        assert _shared_memory() <= shared_memory
        wait_until(lambda: _children() <= threads_before, "a child was not reaped")
    finally:
        for pid in engine_pids(folder / "rt"):
            os.kill(pid, 9)
        shutil.rmtree(folder)


@pytest.fixture
def parent(runtime_folder) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts another Python that runs a program of tests/process/parents.py; all are killed at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str, *args: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.process.parents", program, *map(str, args)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def engine_pids(runtime_folder: Path) -> list[int]:
    """Living engine processes that use this runtime folder."""
    wanted = f"KERNELSERVE_RUNTIME_DIR={runtime_folder}".encode()
    pids = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes()
            ours = b"kernelserve.engine" in command and wanted in (folder / "environ").read_bytes()
        except OSError:
            continue
        if ours and is_process_alive(int(folder.name)):
            pids.append(int(folder.name))
    return pids


def left_files(runtime_folder: Path) -> list[str]:
    """What engines and clients have left; the lock of the registry may stay."""
    return [p.name for p in runtime_folder.rglob("*") if p.name != "registry.lock"]


def assert_nothing_left(runtime_folder: Path, timeout: float = 5) -> None:
    """Fail unless the engines and their files are gone in time."""
    wait_until(lambda: not engine_pids(runtime_folder), "an engine is left", timeout)
    wait_until(lambda: not left_files(runtime_folder), "files are left", timeout)


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 5) -> None:
    """Fail if the condition does not become true in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def _shared_memory() -> set[str]:
    folder = Path("/dev/shm")
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
