"""The widgets that show the dashboard while something runs: words as HTML over one picture."""

from __future__ import annotations

from typing import Any

import ipywidgets
from ipywidgets.widgets.trait_types import CByteMemoryView

from kernelserve_widgets.drawing.widget_tree import close_tree, view_of
from kernelserve_widgets.views.cell_display import CellDisplay
from kernelserve_widgets.views.keeper import Keeper

__all__ = ["LiveView"]


class _Picture(ipywidgets.Image):  # type: ignore[misc]
    """An Image whose bytes are never sent back by the browser."""

    value = CByteMemoryView(help="PNG").tag(sync=True, echo_update=False)


class LiveView:
    """Three widgets with fixed sizes. Their messages belong to the cell of `place`; any thread may use it."""

    def __init__(self, place: CellDisplay, *, width: int, picture_height: int) -> None:
        self._place = place
        place.run(self._make, width, picture_height)

    @property
    def bundle(self) -> dict[str, Any]:
        """The view, without a fallback."""
        return view_of(self._box)

    def update(self, html: str, png: bytes) -> None:
        """Show a frame: two messages."""
        self._place.run(self._set, html, png)

    def close(self) -> None:
        """Close all comms; nothing of it is saved with the notebook any more."""
        self._place.run(self._set, "", b"")  # some clients remember the state of closed widgets
        self._place.run(close_tree, self._box)
        self._place.run(self._keeper.discard)

    def _make(self, width: int, picture_height: int) -> None:
        wide = {"width": f"{width}px", "margin": "0"}
        self._words = ipywidgets.HTML(layout=wide)
        self._picture = _Picture(
            format="png",
            width=str(width),
            height=str(picture_height),
            layout=wide | {"height": f"{picture_height}px"},
        )
        self._box = ipywidgets.VBox([self._words, self._picture], layout=wide)
        self._keeper = Keeper(self._box)

    def _set(self, html: str, png: bytes) -> None:
        self._words.value = html
        self._picture.value = png
