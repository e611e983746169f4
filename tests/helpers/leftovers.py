"""What engines leave behind, and waiting until they leave nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from pathlib import Path

from kernelserve.process_identity import is_process_alive

__all__ = ["assert_nothing_left", "engine_pids", "left_files", "shared_memory", "wait_until"]


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


def assert_nothing_left(
    runtime_folder: Path, timeout: float = 5, *, shared_before: Set[str] | None = None
) -> None:
    """Fail unless the engines, their files and what is new in shared memory are gone in time."""
    wait_until(lambda: not engine_pids(runtime_folder), "an engine is left", timeout)
    wait_until(lambda: not left_files(runtime_folder), "files are left", timeout)
    if shared_before is not None:
        wait_until(lambda: shared_memory() <= shared_before, "shared memory is left", timeout)


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 5) -> None:
    """Fail if the condition does not become true in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def shared_memory() -> set[str]:
    """Names in /dev/shm, without those of Chromium, which may run beside."""
    folder = Path("/dev/shm")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return {name for name in names if "chromium" not in name}
