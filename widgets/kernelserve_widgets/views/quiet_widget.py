"""A widget with little state: what is saved with a notebook, and sent again to each page, stays small."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import anywidget
import traitlets

from kernelserve_widgets.views.cell_display import CellDisplay
from kernelserve_widgets.views.static_files import NOTHING, script, style

__all__ = ["QuietWidget"]

_VIEW_MIME = "application/vnd.jupyter.widget-view+json"
_UNUSED = ("_dom_classes", "_view_count", "layout", "tabbable", "tooltip")
"""Traits of every DOM widget that this one leaves at what the front end assumes anyway."""


class QuietWidget(anywidget.AnyWidget):
    """Shows itself in one cell; what it sends belongs to that cell, from whatever thread it is sent.

    It makes no Layout and no Style, each of which would be a comm of its own.
    """

    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)
    layout = traitlets.Any(None, allow_none=True)
    view_id = traitlets.Unicode().tag(sync=True)
    """The model in whose place a saved notebook shows what static/saved.js puts there: itself, if not given."""

    def __init__(self, name: str, *, css: str | None = None, **traits: Any) -> None:
        self.lock = threading.RLock()
        """Held while messages are made and sent, so that they leave in the order of their numbers."""
        self.place = CellDisplay()
        self.closed = False
        model_id = uuid.uuid4().hex
        look = {"_esm": script(name), "_css": style() if css is None else css}
        super().__init__(model_id=model_id, **look, **{"view_id": model_id, **traits})
        self.on_msg(self._receive)
        self._take_answers_anywhere()

    @traitlets.default("keys")
    def _synced(self) -> list[str]:
        return [name for name in self.traits(sync=True) if name not in _UNUSED]

    def show(self, fallback: str) -> None:
        """Show it in the cell that runs; `fallback` is for front ends without widgets."""
        data, metadata = self._repr_mimebundle_() or ({}, {})
        self.place.show({_VIEW_MIME: data[_VIEW_MIME], "text/plain": fallback}, metadata)

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message to all views. Nothing happens once the widget is closed."""
        with self.lock:
            if not self.closed:
                self.place.run(self.send, message)
                self._take_answers_anywhere()

    def handle(self, message: dict[str, Any]) -> None:
        """Answer a message of a view, in whatever thread it arrives. Must return at once."""

    def become(self, script: str) -> None:
        """Run another script from now on: one that is small in a saved notebook."""
        with self.lock, self.hold_sync():
            self._esm, self._css = script, ""

    def discard(self) -> None:
        """Close the comm. What nbclient has recorded of it shrinks to a few names.

        This is sent in the context of the caller, the cell that runs now: nbclient hears no other cell.
        """
        with self.lock:
            if self.closed:
                return
            self.closed = True
            with self.hold_sync():
                self._esm, self._css, self._anywidget_id = NOTHING, "", ""
            self.send_state([name for name in self.keys if not name.startswith("_")])
            self.close()

    def _take_answers_anywhere(self) -> None:
        """ipykernel 7.4 routes what a view sends to the shell that sent last: to the main one, which a blocking cell
        keeps busy. Without that note it goes where the front end wants it: JupyterLab's own subshell for comms.
        """
        self.comm.__dict__.pop("_reply_subshell_id", None)

    def _receive(self, _: Any, content: Any, buffers: Any) -> None:  # noqa: ARG002
        if isinstance(content, dict):
            self.handle(content)
