"""A front end without a browser: keeps the outputs of cells as JupyterLab does, and answers for widgets."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.helpers.kernel import Kernel

__all__ = ["CellOutputs", "FrontEnd"]

_WIDGET = "application/vnd.jupyter.widget-view+json"


@dataclass
class CellOutputs:
    """What is below a cell now."""

    message_id: str
    outputs: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None
    traceback: str = ""
    done: bool = False
    done_at: float = 0.0

    @property
    def text(self) -> str:
        """Everything that can be read, without widgets."""
        return "\n".join(_text_of(output) for output in self.outputs)

    @property
    def widgets(self) -> list[str]:
        """Model ids of the widgets that are shown."""
        bundles = [output.get("data", {}) for output in self.outputs]
        return [data[_WIDGET]["model_id"] for data in bundles if _WIDGET in data]


class FrontEnd:
    """Sends cells and comm messages, and files what comes back: by cell, by display id, by comm."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._client = kernel.client
        self.cells: dict[str, CellOutputs] = {}
        self.comms: dict[str, dict[str, Any]] = {}
        """Open comms: id -> state of the widget, as far as it is known."""
        self.custom: dict[str, list[dict[str, Any]]] = {}
        """Custom messages of each comm, closed ones too."""
        self.num_messages = 0
        self.num_bytes = 0
        self._displays: dict[str, list[dict[str, Any]]] = {}

    def submit(self, code: str, *, cell_id: str | None = None) -> CellOutputs:
        """Send a cell, as JupyterLab does with the id of the cell."""
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        content |= {"user_expressions": {}, "stop_on_error": True}
        metadata = {"cellId": cell_id} if cell_id else {}
        message = self._client.session.msg("execute_request", content, metadata=metadata)
        self._client.shell_channel.send(message)
        cell = self.cells[message["header"]["msg_id"]] = CellOutputs(message["header"]["msg_id"])
        return cell

    def run(self, code: str, *, cell_id: str | None = None, timeout: float = 60) -> CellOutputs:
        """Run a cell to its end."""
        return self.finish(self.submit(code, cell_id=cell_id), timeout=timeout)

    def finish(self, cell: CellOutputs, *, timeout: float = 60) -> CellOutputs:
        """Wait for the end of a cell."""
        self.wait(lambda: cell.done, timeout=timeout)
        return cell

    def wait_for_widget(self, cell: CellOutputs) -> str:
        """Return the id of the widget of a cell when it is shown."""
        self.wait(lambda: cell.widgets)
        return cell.widgets[0]

    def ok(self, code: str, *, timeout: float = 60) -> str:
        """Run a cell that must not fail. Returns what can be read below it."""
        cell = self.run(code, timeout=timeout)
        assert cell.error is None, cell.traceback
        return cell.text.strip()

    def wait(self, condition: Callable[[], object], *, timeout: float = 60) -> None:
        """Take messages until something is so."""
        deadline = time.monotonic() + timeout
        while not condition():
            self._take(timeout=max(0.01, deadline - time.monotonic()))

    def listen(self, seconds: float) -> None:
        """Take messages for a while."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                self._take(timeout=left)
            except queue.Empty:
                return

    def click(self, comm_id: str, content: dict[str, Any]) -> None:
        """Send a custom message of a widget."""
        data = {"method": "custom", "content": content}
        message = self._client.session.msg("comm_msg", {"comm_id": comm_id, "data": data})
        self._client.shell_channel.send(message)

    def _take(self, *, timeout: float) -> None:
        message = self._client.get_iopub_msg(timeout=timeout)
        kind, content = message["msg_type"], message["content"]
        if kind not in ("status", "execute_input"):
            self.num_messages += 1
            self.num_bytes += len(json.dumps(content, default=str))
            self.num_bytes += sum(len(buffer) for buffer in message.get("buffers", ()))
        cell = self.cells.get(message["parent_header"].get("msg_id", ""))
        if kind.startswith("comm_"):
            self._take_comm(kind, content)
        elif kind == "update_display_data":
            for output in self._displays.get(content["transient"]["display_id"], []):
                output["data"], output["metadata"] = content["data"], content["metadata"]
        elif cell is not None:
            self._take_output(cell, kind, content)

    def _take_output(self, cell: CellOutputs, kind: str, content: dict[str, Any]) -> None:
        if kind == "stream":
            last = cell.outputs[-1] if cell.outputs else {}
            if last.get("name") == content["name"]:
                last["text"] += content["text"]
            else:
                cell.outputs.append(dict(content))
        elif kind in ("display_data", "execute_result"):
            output = {"data": content["data"], "metadata": content["metadata"]}
            cell.outputs.append(output)
            if (display_id := content.get("transient", {}).get("display_id")) is not None:
                self._displays.setdefault(display_id, []).append(output)
        elif kind == "error":
            cell.error = f"{content['ename']}: {content['evalue']}"
            cell.traceback = "\n".join(content["traceback"])
        elif kind == "status" and content["execution_state"] == "idle":
            cell.done, cell.done_at = True, time.monotonic()

    def _take_comm(self, kind: str, content: dict[str, Any]) -> None:
        comm_id, data = content["comm_id"], content["data"]
        if kind == "comm_open":
            self.comms[comm_id] = data.get("state", {})
            self.custom[comm_id] = []
        elif kind == "comm_close":
            self.comms.pop(comm_id, None)
        elif data.get("method") == "update":
            self.comms.setdefault(comm_id, {}).update(data["state"])
        elif data.get("method") == "custom":
            self.custom.setdefault(comm_id, []).append(data["content"])


def _text_of(output: dict[str, Any]) -> str:
    if "text" in output:
        return str(output["text"])
    data = output["data"]
    for kind in ("text/markdown", "text/plain", "text/html", "application/json"):
        if kind in data and _WIDGET not in data:
            return str(data[kind])
    return ""
