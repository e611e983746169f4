"""Draws the dashboard's numbers: frames for widgets, and pictures that stand alone."""

from __future__ import annotations

from typing import NamedTuple

from kernelserve.protocol import KVCacheMap
from kernelserve_widgets.dashboard.dashboard_figure import (
    FIGURE_HEIGHT,
    FIGURE_WIDTH,
    DashboardFigure,
)
from kernelserve_widgets.dashboard.dashboard_numbers import DashboardNumbers
from kernelserve_widgets.dashboard.panel_html import as_html
from kernelserve_widgets.dashboard.panel_text import as_text
from kernelserve_widgets.dashboard.still_picture import StillPicture, still_height
from kernelserve_widgets.drawing.theme import theme_of
from kernelserve_widgets.history.request_names import RequestNames
from kernelserve_widgets.views.cell_display import MimeBundle

__all__ = ["Painter", "Scene"]


class Scene(NamedTuple):
    """All that a frame shows."""

    title: str
    numbers: DashboardNumbers
    names: RequestNames
    block_map: KVCacheMap | None


class Painter:
    """Needs matplotlib. Used by one thread at a time; makes its figures when they are first needed."""

    width = FIGURE_WIDTH
    picture_height = FIGURE_HEIGHT

    def __init__(self, theme: str, *, scale: int = 1) -> None:
        self._theme = theme_of(theme)
        self._scale = scale
        self.figure = DashboardFigure(self._theme, scale=scale)
        self._still: StillPicture | None = None

    def frame(self, scene: Scene) -> tuple[str, bytes]:
        """Return the HTML and the PNG that widgets show."""
        self.figure.draw(scene.numbers, scene.names, scene.block_map)
        html = as_html(scene.numbers, scene.title, self._theme, FIGURE_WIDTH)
        return html, self.figure.png()

    def still(self, scene: Scene) -> bytes:
        """Return everything as one PNG."""
        if self._still is None:
            self._still = StillPicture(self._theme, scale=self._scale)
        self.figure.draw(scene.numbers, scene.names, scene.block_map)
        return self._still.png(scene.numbers, scene.title, self.figure.pixels())

    def still_bundle(self, scene: Scene) -> MimeBundle:
        """Return the picture with its text, as an output that needs nothing to be shown."""
        size = {"width": FIGURE_WIDTH, "height": still_height(scene.numbers)}
        data = {"image/png": self.still(scene), "text/plain": as_text(scene.numbers, scene.title)}
        return data, {"image/png": size}
