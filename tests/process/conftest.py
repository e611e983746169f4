"""Engine processes with a fake model, and the proof that nothing of ours is left after each test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.leftovers import (
    assert_nothing_left,
    engine_pids,
    shared_memory,
    wait_until,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def anyio_backend() -> str:
    """Tests that depend on the event loop are marked to run on trio too."""
    return "asyncio"


@pytest.fixture(autouse=True)
def runtime_folder(monkeypatch) -> Iterator[Path]:
    """Folders of the test's own. At the end no process, socket, folder or shared memory of ours is left."""
    folder = Path(tempfile.mkdtemp(prefix="ks-"))
    shm_before = shared_memory()
    threads_before = _children()
    monkeypatch.setenv("KERNELSERVE_RUNTIME_DIR", str(folder / "rt"))
    monkeypatch.setenv("KERNELSERVE_CACHE_DIR", str(folder / "cache"))
    (folder / "rt").mkdir(mode=0o700)
    yield folder / "rt"
    try:
        assert_nothing_left(folder / "rt", shared_before=shm_before)
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


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
