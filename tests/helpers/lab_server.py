"""A JupyterLab of the tests' own: its folders, its port, its end."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.helpers.leftovers import engine_pids, wait_until

__all__ = ["LabServer"]

START_SECONDS = 60.0
STOP_SECONDS = 15.0

# Standard input is the lifeline: when it closes, whatever killed the tests, the server ends as after SIGTERM.
_CONFIG = """
import os, signal, sys, threading

c = get_config()
c.ServerApp.ip = "127.0.0.1"
c.ServerApp.port = {port}
c.ServerApp.port_retries = 0
c.ServerApp.open_browser = False
c.ServerApp.allow_root = True
c.ServerApp.root_dir = {root!r}
c.ServerApp.terminals_enabled = False
c.IdentityProvider.token = {token!r}
c.LabApp.expose_app_in_browser = True
c.LabApp.extension_manager = "readonly"
c.FileContentsManager.delete_to_trash = False


def end_with_the_tests():
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


threading.Thread(target=end_with_the_tests, daemon=True).start()
"""
# Lab asks its user about news else.
_SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False}
}
_FOLDERS = {
    "JUPYTER_CONFIG_DIR": "config",
    "JUPYTER_DATA_DIR": "data",
    "JUPYTER_RUNTIME_DIR": "runtime",
    "JUPYTERLAB_SETTINGS_DIR": "settings",
    "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
    "IPYTHONDIR": "ipython",
    "MPLCONFIGDIR": "matplotlib",
    "KERNELSERVE_RUNTIME_DIR": "rt",
}


class LabServer:
    """Starts on entry and is gone on exit, with all its kernels and their engines.

    Raises RuntimeError with the server's log if it does not start.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ks-"))
        self.root = self._folder / "notebooks"
        """What JupyterLab shows as its folder; kernels of notebooks in it start here."""
        self.runtime_folder = self._folder / _FOLDERS["KERNELSERVE_RUNTIME_DIR"]
        self.token = secrets.token_hex(16)
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None
        # A proxy of the machine's environment is not for an address of the machine itself.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def __enter__(self) -> LabServer:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def write_notebook(self, name: str, cells: Sequence[str]) -> Path:
        """Write a notebook of code cells without outputs."""
        path = self.root / name
        path.write_text(json.dumps(_notebook(cells)))
        return path

    def read_notebook(self, name: str) -> Any:
        """Return the notebook as it was saved last, with every text in one piece."""
        return json.loads((self.root / name).read_text(), object_hook=_join_lines)

    def shutdown_kernels(self) -> None:
        """End every kernel politely, as File > Close and Shut Down does, and wait for the ends of their engines."""
        for session in self._ask("GET", "/api/sessions"):
            self._ask("DELETE", f"/api/sessions/{session['id']}")
        wait_until(lambda: not self._ask("GET", "/api/kernels"), "a kernel is left", STOP_SECONDS)
        wait_until(lambda: not engine_pids(self.runtime_folder), "an engine is left", STOP_SECONDS)

    def kernel_ids(self) -> list[str]:
        """Ids of the kernels that run."""
        return [kernel["id"] for kernel in self._ask("GET", "/api/kernels")]

    def log(self) -> str:
        """Return what the server and its kernels have written so far."""
        path = self._folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _start(self) -> None:
        for name in ("notebooks", *_FOLDERS.values()):
            (self._folder / name).mkdir(mode=0o700)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        config = self._folder / "jupyter_lab_config.py"
        config.write_text(_CONFIG.format(port=port, token=self.token, root=str(self.root)))
        for plugin, settings in _SETTINGS.items():
            path = self._folder / "settings" / f"{plugin}.jupyterlab-settings"
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps(settings))
        own = {variable: str(self._folder / name) for variable, name in _FOLDERS.items()}
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", "--config", str(config)],
                cwd=self.root,
                env=os.environ | own,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_until_ready(self._process)

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(urllib.error.URLError):
                self._ask("GET", "/api/status")
                return
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"JupyterLab did not start at {self.url}:\n{self.log()[-4000:]}")
            time.sleep(0.05)

    def _ask(self, method: str, path: str) -> Any:
        """Call the server's REST interface; None where it answers with nothing."""
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(self.url + path, method=method, headers=headers)
        with self._opener.open(request, timeout=STOP_SECONDS) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def _end(self) -> None:
        """Ask politely, then kill; kernels, in sessions of their own, end with the server or are killed one by one."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
            for pid in self._processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
            wait_until(lambda: not self._processes(), "a process of JupyterLab is left")
        shutil.rmtree(self._folder)

    def _processes(self) -> list[int]:
        """Everything that was started with this server's folders: itself, kernels, engines."""
        mark = f"KERNELSERVE_RUNTIME_DIR={self.runtime_folder}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and mark in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
        return found


def _notebook(sources: Sequence[str]) -> dict[str, Any]:
    """The JSON of a notebook; nbformat would do the same, but takes seconds to import."""
    cells: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "id": f"cell-{i:02}",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": source,
        }
        for i, source in enumerate(sources)
    ]
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _join_lines(node: dict[str, Any]) -> dict[str, Any]:
    """Notebook files keep texts as lists of lines."""
    return {
        key: "".join(value)
        if isinstance(value, list) and value and all(isinstance(line, str) for line in value)
        else value
        for key, value in node.items()
    }
