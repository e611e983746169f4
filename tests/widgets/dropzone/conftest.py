"""A shell of a notebook whose comms and displays are recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core import display_functions

from kernelserve_widgets.dropzone import drop_zone, drop_zones
from kernelserve_widgets.dropzone.drop_zones import DropZones
from tests.helpers.recording_comm import RecordingComm, record_comms


@dataclass
class Notebook:
    """What a test sees of the front end."""

    folder: Path
    ui: str = "widget"
    cell: str | None = "one"
    comms: list[RecordingComm] = field(default_factory=list)
    shown: list[dict[str, Any]] = field(default_factory=list)
    """Everything that was displayed: data, metadata, id, update."""
    hooks: list[Any] = field(default_factory=list)

    def restart(self) -> DropZones:
        """A new kernel in the same folder: nothing is known but the files."""
        self.comms.clear()
        self.shown.clear()
        self.hooks.clear()
        return DropZones()

    def run_a_cell(self) -> None:
        for hook in self.hooks:
            hook(None)


@pytest.fixture
def notebook(monkeypatch, tmp_path) -> Notebook:
    """A notebook in an empty folder, in a front end with widgets."""
    monkeypatch.chdir(tmp_path)
    made = Notebook(tmp_path, comms=record_comms(monkeypatch).comms)

    def publish(data, metadata=None, *, transient=None, update=False):
        display_id = (transient or {}).get("display_id")
        made.shown.append({"data": data, "metadata": metadata, "id": display_id, "update": update})

    events = SimpleNamespace(register=lambda _, hook: made.hooks.append(hook))
    shell = SimpleNamespace(events=events)
    monkeypatch.setattr(display_functions, "publish_display_data", publish)
    monkeypatch.setattr(drop_zone, "choose_ui", lambda _: made.ui)
    monkeypatch.setattr(drop_zones, "current_shell", lambda: shell)
    monkeypatch.setattr(drop_zones, "cell_id", lambda _: made.cell)
    return made
