"""The picture of the dashboard: the block map and three plots, blitted over a background that seldom changes."""

from __future__ import annotations

from typing import Any, cast

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from kernelserve.protocol import KVCacheMap
from kernelserve_widgets.dashboard.banded_png import BandedPng
from kernelserve_widgets.dashboard.block_map import MAP_HEIGHT, MAP_WIDTH, BlockMap
from kernelserve_widgets.dashboard.budget_plot import STRIP_HEIGHT, BudgetPlot
from kernelserve_widgets.dashboard.dashboard_numbers import DashboardNumbers
from kernelserve_widgets.dashboard.inks import Inks
from kernelserve_widgets.dashboard.latency_plot import LatencyPlot
from kernelserve_widgets.dashboard.palette import Indices, Palette, Pixels
from kernelserve_widgets.dashboard.plot_panel import Box, PlotPanel, write
from kernelserve_widgets.dashboard.throughput_plot import ThroughputPlot
from kernelserve_widgets.dashboard.token_window import TimeBin
from kernelserve_widgets.drawing.theme import Theme
from kernelserve_widgets.history.request_names import RequestNames

__all__ = ["FIGURE_HEIGHT", "FIGURE_WIDTH", "DashboardFigure"]

FIGURE_WIDTH, FIGURE_HEIGHT = 900, 400
"""Pixels at scale 1."""
_LEFT, _RIGHT, _PLOT_WIDTH = 22, 478, 400
_TOP, _BOTTOM = 36, 284
_LOWER_HEIGHT = 86
_MIDDLE = 256
"""The row between the upper legends and the lower titles."""
_CUTS = (_TOP, _TOP + MAP_HEIGHT + STRIP_HEIGHT, _MIDDLE)
"""Between rows of text, which seldom change, and those that do."""


class DashboardFigure:
    """Draws frames, in one thread at a time. No pyplot; the user's settings of matplotlib neither matter nor change.

        block map            tokens in each step
        latency              tokens a second

    A frame changes as little as it can of a picture of palette colours. matplotlib draws titles and legends once, the
    scale of a plot when its range changes, and curves when there are new bins. Blocks and bars are rectangles: they are
    painted into the picture with each frame. Drawing a word takes 2 ms, painting all bars a tenth of that.
    """

    def __init__(self, theme: Theme, *, scale: int = 1) -> None:
        self.num_scales = 0
        """How often the scale of a plot was drawn."""
        self._scale = scale
        inks = Inks(theme)
        with mpl.rc_context(cast("Any", _default_settings())):
            self.figure = Figure(
                figsize=(FIGURE_WIDTH / 100, FIGURE_HEIGHT / 100),
                dpi=100 * scale,
                facecolor=theme.background,
            )
            self.canvas = FigureCanvasAgg(self.figure)
            inset = 46
            narrow = _PLOT_WIDTH - inset
            budget_box = Box(_RIGHT, _TOP, _PLOT_WIDTH, MAP_HEIGHT)
            self.budget = BudgetPlot(self.figure, budget_box, theme, inks, scale=scale)
            self.latency = LatencyPlot(
                self.figure, Box(_LEFT + inset, _BOTTOM, narrow, _LOWER_HEIGHT), theme
            )
            self.throughput = ThroughputPlot(
                self.figure, Box(_RIGHT, _BOTTOM, _PLOT_WIDTH, _LOWER_HEIGHT), theme
            )
            self._map_title = write(
                self.figure, _LEFT, _TOP - 18, "KV-cache blocks", theme.text, size=8.5, bold=True
            )
            self._map_legend(theme)
        self.block_map = BlockMap(theme, inks, scale=scale)
        self._palette = Palette(inks.colours)
        size = (FIGURE_WIDTH * scale, FIGURE_HEIGHT * scale)
        self._png = BandedPng(*size, self._palette, cuts=[row * scale for row in _CUTS])
        self._map_place = self._place(_LEFT, MAP_WIDTH, MAP_HEIGHT)
        self._budget_place = self._place(_RIGHT, _PLOT_WIDTH, MAP_HEIGHT + STRIP_HEIGHT)
        self._no_bars = self._budget_place.copy()
        self._titles: Pixels | None = None
        """Titles and legends alone."""
        self._bins: list[TimeBin] | None = None
        self._sees = False
        self._drawn_map: KVCacheMap | None = None
        self._map_pixels = self._map_place.copy()

    def draw(
        self,
        numbers: DashboardNumbers,
        names: RequestNames,
        block_map: KVCacheMap | None = None,
    ) -> None:
        """Draw a frame. No map: the last one stays. Curves are drawn anew when `numbers.bins` is another list."""
        if block_map is not None and block_map is not self._drawn_map:
            self._drawn_map = block_map
            self._draw_map(block_map, names)
        if (sees := numbers.encoder is not None) != self._sees:
            self._sees = sees
            self.latency.show_encoder(sees)
            self._titles = None
        everything = self._titles is None
        if everything:
            self._draw_titles()
        if self.budget.update(numbers) or everything:
            self._draw_scale(self.budget)
            self._no_bars = self._budget_place.copy()
        if numbers.bins is not self._bins or everything:
            self._bins = numbers.bins
            for panel in (self.latency, self.throughput):
                if panel.update(numbers) or everything:
                    self._draw_scale(panel)
                self._draw_curves(panel)
        self._budget_place[:] = self._no_bars
        self.budget.paint(self._budget_place)
        if self._drawn_map is not None:
            self._map_place[:] = self._map_pixels
        self._png.touch(_CUTS[0] * self._scale, _CUTS[1] * self._scale)

    def png(self) -> bytes:
        """Return the frame that was drawn last."""
        return self._png.encode()

    def pixels(self) -> Pixels:
        """Return the same as RGBA."""
        return self._palette.pixels(self._png.pixels)

    def _place(self, left: int, width: int, height: int) -> Indices:
        """Return a part of the picture below its upper titles."""
        scale = self._scale
        rows = self._png.pixels[_TOP * scale : (_TOP + height) * scale]
        return rows[:, left * scale : (left + width) * scale]

    def _draw_map(self, block_map: KVCacheMap, names: RequestNames) -> None:
        blocks_per_cell = self.block_map.blocks_per_cell
        self._map_pixels = self.block_map.draw(block_map, names)
        size = self.block_map.blocks_per_cell
        if size != blocks_per_cell:
            more = f", {size} in each cell" if size > 1 else ""
            self._map_title.set_text(f"KV-cache blocks{more}")
            self._titles = None

    def _draw_titles(self) -> None:
        """Draw what is drawn once."""
        self.canvas.draw()
        self._titles = self._canvas_pixels().copy()
        self._background = self._titles.copy()
        self._take((slice(0, len(self._titles)), slice(None)))

    def _draw_scale(self, panel: PlotPanel) -> None:
        """Draw a scale beside the titles, with no curves."""
        assert self._titles is not None
        drawn, area = self._canvas_pixels(), panel.changing
        drawn[area] = self._titles[area]
        panel.draw_scale()
        self._background[area] = drawn[area]
        self._take(area)
        self.num_scales += 1

    def _draw_curves(self, panel: PlotPanel) -> None:
        """Draw the artists of a panel over its scale."""
        drawn, area = self._canvas_pixels(), panel.changing
        drawn[area] = self._background[area]
        panel.draw()
        self._take(area)

    def _take(self, area: tuple[slice, slice]) -> None:
        """Take over a part of what matplotlib has drawn."""
        self._png.pixels[area] = self._palette.indices(self._canvas_pixels()[area])
        self._png.touch(area[0].start, area[0].stop)

    def _canvas_pixels(self) -> Pixels:
        """Return the memory that matplotlib draws into."""
        return np.asarray(self.canvas.buffer_rgba())

    def _map_legend(self, theme: Theme) -> None:
        y = _TOP + MAP_HEIGHT + 24
        entries = [
            ("■", theme.prefill, "one request", 0),
            ("■", theme.shared_block, "shared by several", 84),
            ("■", theme.cached_block, "cached, free", 196),
            ("■", theme.free_block, "empty", 280),
        ]
        for mark, colour, text, offset in entries:
            write(self.figure, _LEFT + offset - 2, y, mark, colour)
            write(self.figure, _LEFT + offset + 11, y, text, theme.muted, size=7)


def _default_settings() -> dict[str, Any]:
    """Return matplotlib's own style, but for what concerns windows."""
    return {
        key: value
        for key, value in mpl.rcParamsDefault.items()
        if not key.startswith(("backend", "interactive", "toolbar", "webagg", "tk.", "macosx."))
    }
