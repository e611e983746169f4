"""A real Jupyter kernel for a test: run cells, interrupt, restart, kill."""

from __future__ import annotations

import os
import queue
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

__all__ = ["Cell", "Kernel", "on_both_ipykernels", "start_kernel"]

on_both_ipykernels = pytest.mark.parametrize(
    "ipykernel", ["ipykernel7", "ipykernel6"], indirect=True
)
"""Runs a test with the ipykernel of the environment, and with the last one of the major version before."""


@dataclass
class Cell:
    """What a cell showed and how it ended."""

    text: str = ""
    error: str | None = None
    """`ename: evalue`, None if it went well."""
    traceback: str = ""
    display: list[dict[str, Any]] = field(default_factory=list)


class Kernel:
    """Drives one kernel the way a front end does."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self.client: Any = None
        """The jupyter_client that talks to it."""
        self._connect()

    @property
    def pid(self) -> int:
        """Process id of the kernel."""
        pid: int = self._manager.provisioner.process.pid
        return pid

    def submit(self, code: str) -> str:
        """Send a cell and return its message id at once."""
        message_id: str = self.client.execute(code)
        return message_id

    def finish(self, message_id: str, *, timeout: float = 60) -> Cell:
        """Collect the outputs of a cell until it is idle."""
        cell = Cell()
        deadline = time.monotonic() + timeout
        while True:
            message = self.client.get_iopub_msg(timeout=max(0.0, deadline - time.monotonic()))
            if message["parent_header"].get("msg_id") != message_id:
                continue
            content = message["content"]
            match message["msg_type"]:
                case "stream":
                    cell.text += content["text"]
                case "execute_result" | "display_data":
                    cell.display.append(content["data"])
                    cell.text += content["data"].get("text/plain", "")
                case "error":
                    cell.error = f"{content['ename']}: {content['evalue']}"
                    cell.traceback = "\n".join(content["traceback"])
                case "status" if content["execution_state"] == "idle":
                    return cell

    def run(self, code: str, *, timeout: float = 60) -> Cell:
        """Run a cell to its end."""
        return self.finish(self.submit(code), timeout=timeout)

    def ok(self, code: str, *, timeout: float = 60) -> str:
        """Run a cell that must not fail. Returns what it printed."""
        cell = self.run(code, timeout=timeout)
        assert cell.error is None, cell.traceback
        return cell.text.strip()

    def wait_for_text(self, message_id: str, text: str, *, timeout: float = 60) -> None:
        """Return when the cell has printed `text`."""
        seen = ""
        deadline = time.monotonic() + timeout
        while text not in seen:
            message = self.client.get_iopub_msg(timeout=max(0.0, deadline - time.monotonic()))
            if message["parent_header"].get("msg_id") == message_id:
                assert message["msg_type"] != "error", message["content"]
                seen += message["content"].get("text", "")

    def complete(self, code: str) -> dict[str, Any]:
        """Ask for completions at the end of `code`. Returns the content of the reply."""
        message_id = self.client.complete(code, len(code))
        while True:
            reply = self.client.get_shell_msg(timeout=10)
            if reply["parent_header"].get("msg_id") == message_id:
                content: dict[str, Any] = reply["content"]
                return content

    def interrupt(self) -> None:
        """Press Stop: SIGINT to the kernel's process group."""
        self._manager.interrupt_kernel()

    def restart(self) -> None:
        """Restart politely, as the menu does."""
        self.client.stop_channels()
        self._manager.restart_kernel()
        self._connect()

    def kill(self) -> None:
        """kill -9 the kernel process alone, and reap it."""
        os.kill(self.pid, signal.SIGKILL)
        self._manager.provisioner.process.wait()

    def close(self) -> None:
        """End the kernel, whatever state it is in."""
        self.client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        self._manager.cleanup_resources()

    def _connect(self) -> None:
        self.client = self._manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        while True:
            try:
                self.client.get_iopub_msg(timeout=0.2)
            except queue.Empty:
                return


@contextmanager
def start_kernel(*, ipykernel: str = "ipykernel7", **env: str) -> Iterator[Kernel]:
    """A kernel that is gone afterwards, with extra environment variables."""
    environment = os.environ | env
    if ipykernel == "ipykernel6":
        paths = [str(_ipykernel_6()), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    manager: Any = KernelManager(kernel_name="python3")
    manager.start_kernel(env=environment)
    kernel = Kernel(manager)
    try:
        yield kernel
    finally:
        kernel.close()


def _ipykernel_6() -> Path:
    """Return the folder that `make test` installs it into. Without it the test is skipped, in CI it fails."""
    folder = Path(sys.prefix) / "ipykernel-6"
    if not (folder / "ipykernel").is_dir():
        missing = f"{folder} is missing: `make test` installs ipykernel 6 there"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return folder
