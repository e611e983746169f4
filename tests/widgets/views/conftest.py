"""Recording comms and displays for the views."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core import display_functions

from kernelserve_widgets.views.token_explorer import open_explorers
from kernelserve_widgets.views.widget_view import finished_widgets
from tests.helpers.recording_comm import CommLog, record_comms


@pytest.fixture
def comms(monkeypatch) -> Iterator[CommLog]:
    """All comms that the test opens. The shelves are empty before and after."""
    log = record_comms(monkeypatch)
    yield log
    finished_widgets().clear()
    open_explorers().clear()


@pytest.fixture
def displays(monkeypatch) -> list[dict[str, Any]]:
    """Everything that is displayed: data, metadata, display_id, update."""
    shown: list[dict[str, Any]] = []

    def publish(data, metadata=None, *, transient=None, update=False):
        display_id = (transient or {}).get("display_id")
        shown.append({"data": data, "metadata": metadata, "id": display_id, "update": update})

    monkeypatch.setattr(display_functions, "publish_display_data", publish)
    return shown
