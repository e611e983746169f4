"""Runs a notebook in a kernel of this environment; fails if a cell fails or the memory exceeds a limit.

python check_notebook.py NOTEBOOK LIMIT_IN_MB
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import nbformat
from nbclient import NotebookClient

POLL_SECONDS = 0.2


class PeakMemory:
    """Watches the processes that this one starts, and theirs: the kernel, and the engine of the kernel."""

    def __init__(self) -> None:
        self.highest: dict[str, int] = {}
        """The most that the processes of one moment have had resident so far, in MB, mapped files included."""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(POLL_SECONDS):
            now: dict[str, int] = {}
            pids = _children(os.getpid())
            for pid in pids:
                pids += _children(pid)
                now |= _peak_of(pid)
            if sum(now.values()) > sum(self.highest.values()):
                self.highest = now


def _peak_of(pid: int) -> dict[str, int]:
    """Name and highest resident memory of a process in MB, unless it has just ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return {}
    fields = dict(line.split(":", 1) for line in status.splitlines())
    if "VmHWM" not in fields:
        return {}
    name = command[command.index("-m") + 1] if "-m" in command else fields["Name"].strip()
    return {f"{name} {pid}": int(fields["VmHWM"].split()[0]) // 1000}


def _children(pid: int) -> list[int]:
    """Children of all threads of a process."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []  # it has just ended


def main() -> None:
    notebook, limit = Path(sys.argv[1]), int(sys.argv[2])
    client = NotebookClient(
        nbformat.read(notebook, as_version=4),
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(notebook.parent)}},
        extra_arguments=["--log-level=ERROR"],
    )
    with PeakMemory() as memory:
        client.execute()
    total = sum(memory.highest.values())
    sys.stdout.write(f"{notebook.name}: {total} MB at most: {memory.highest}\n")
    assert 0 < total < limit, f"more than {limit} MB"


if __name__ == "__main__":
    main()
