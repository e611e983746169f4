"""Real kernels with real engine processes, and the proof that nothing of ours is left after each test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelserve.process_identity import is_process_alive
from tests.helpers.kernel import Kernel, start_kernel

StartKernel = Callable[[], Kernel]


@pytest.fixture
def runtime_folder(tmp_path_factory, monkeypatch) -> Iterator[Path]:
    """A runtime folder of the test's own, empty again at the end: no socket, descriptor or run folder is left."""
    folder = tmp_path_factory.mktemp("rt")
    shm_before = _shared_memory()
    monkeypatch.setenv("KERNELSERVE_RUNTIME_DIR", str(folder))
    yield folder
    wait_until(lambda: not engine_pids(folder), "an engine process is left", timeout=8)
    wait_until(lambda: not _left_files(folder), lambda: f"left: {_left_files(folder)}", timeout=5)
    assert _shared_memory() <= shm_before


@pytest.fixture
def new_kernel(runtime_folder) -> Iterator[StartKernel]:
    """Starts kernels that share the test's runtime folder; all are gone at the end."""
    contexts = []

    def start() -> Kernel:
        context = start_kernel(KERNELSERVE_RUNTIME_DIR=str(runtime_folder))
        contexts.append(context)
        return context.__enter__()

    yield start
    for context in contexts:
        context.__exit__(None, None, None)


@pytest.fixture
def kernel(new_kernel) -> Kernel:
    """One kernel with kernelserve imported."""
    kernel: Kernel = new_kernel()
    kernel.ok("import kernelserve as ks, time, os")
    return kernel


def engine_pids(runtime_folder: Path) -> list[int]:
    """Engine processes whose environment names the runtime folder."""
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


def wait_until(
    condition: Callable[[], bool], what: str | Callable[[], str], *, timeout: float = 5
) -> None:
    """Fail with `what` if the condition does not become true in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(what if isinstance(what, str) else what())
        time.sleep(0.02)


def _left_files(folder: Path) -> list[str]:
    """Files of engines; the lock of the registry stays."""
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if not path.name.endswith("lock") and not path.is_dir()
    ]


def _shared_memory() -> set[str]:
    folder = Path("/dev/shm")
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()
