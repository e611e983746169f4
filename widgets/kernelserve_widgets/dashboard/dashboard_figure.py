"""The picture of the dashboard: the block map and three plots, blitted over a background that seldom changes."""

from __future__ import annotations

from typing import Any, cast

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from kernelserve.protocol import KVCacheMap
from kernelserve_widgets.dashboard.block_map import MAP_HEIGHT, BlockMap
from kernelserve_widgets.dashboard.budget_plot import BudgetPlot
from kernelserve_widgets.dashboard.dashboard_numbers import DashboardNumbers
from kernelserve_widgets.dashboard.latency_plot import LatencyPlot
from kernelserve_widgets.dashboard.palette_encoder import PaletteEncoder
from kernelserve_widgets.dashboard.plot_panel import Box, write
from kernelserve_widgets.dashboard.throughput_plot import ThroughputPlot
from kernelserve_widgets.drawing.theme import Theme
from kernelserve_widgets.history.request_names import RequestNames

__all__ = ["FIGURE_HEIGHT", "FIGURE_WIDTH", "DashboardFigure"]

FIGURE_WIDTH, FIGURE_HEIGHT = 900, 400
"""Pixels at scale 1."""
_LEFT, _RIGHT, _PLOT_WIDTH = 22, 478, 400
_TOP, _BOTTOM = 36, 284
_LOWER_HEIGHT = 86


class DashboardFigure:
    """Draws frames, in one thread at a time. No pyplot; the user's settings of matplotlib neither matter nor change.

        block map            tokens in each step
        latency              tokens a second

    A frame restores the background and draws the artists over it. Text is slow (2 ms each), so the background has two
    layers: titles and legends, drawn once, and the scales over them, drawn anew only when the range of an axis changes.
    """

    def __init__(self, theme: Theme, *, scale: int = 1) -> None:
        self.num_backgrounds = 0
        """How often the background was drawn."""
        self._scale = scale
        with mpl.rc_context(cast("Any", _default_settings())):
            self.figure = Figure(
                figsize=(FIGURE_WIDTH / 100, FIGURE_HEIGHT / 100),
                dpi=100 * scale,
                facecolor=theme.background,
            )
            self.canvas = FigureCanvasAgg(self.figure)
            inset = 46
            narrow = _PLOT_WIDTH - inset
            self.budget = BudgetPlot(self.figure, Box(_RIGHT, _TOP, _PLOT_WIDTH, MAP_HEIGHT), theme)
            self.latency = LatencyPlot(
                self.figure, Box(_LEFT + inset, _BOTTOM, narrow, _LOWER_HEIGHT), theme
            )
            self.throughput = ThroughputPlot(
                self.figure, Box(_RIGHT, _BOTTOM, _PLOT_WIDTH, _LOWER_HEIGHT), theme
            )
            self.panels = (self.budget, self.latency, self.throughput)
            self._map_title = write(
                self.figure, _LEFT, _TOP - 18, "KV-cache blocks", theme.text, size=8.5, bold=True
            )
            self._map_legend(theme)
        self.block_map = BlockMap(theme, scale=scale)
        self._encoder = PaletteEncoder(FIGURE_WIDTH * scale, FIGURE_HEIGHT * scale)
        self._titles: Any = None
        self._background: Any = None
        self._drawn_map: KVCacheMap | None = None
        self._map_pixels: npt.NDArray[np.uint8] | None = None

    def draw(
        self,
        numbers: DashboardNumbers,
        names: RequestNames,
        block_map: KVCacheMap | None = None,
    ) -> npt.NDArray[np.uint8]:
        """Draw a frame and return it as RGBA [height, width, 4], valid until the next. No map: the last one stays."""
        changed = [panel.update(numbers) for panel in self.panels]
        if block_map is not None and block_map is not self._drawn_map:
            self._drawn_map = block_map
            blocks_per_cell = self.block_map.blocks_per_cell
            self._map_pixels = self.block_map.draw(block_map, names)
            if blocks_per_cell != self.block_map.blocks_per_cell:
                self._tell_cell_size()
                changed.append(True)
        stale = self._background is None or any(changed)
        if stale:
            self._draw_background()
        self.canvas.restore_region(self._background)
        for panel in self.panels:
            panel.draw()
        frame = np.asarray(self.canvas.buffer_rgba())
        if self._map_pixels is not None:
            top, left = _TOP * self._scale, _LEFT * self._scale
            height, width, _ = self._map_pixels.shape
            place = frame.view(np.uint32)[top : top + height, left : left + width]
            place[:] = self._map_pixels.view(np.uint32)
        if stale:
            self._encoder.learn(frame)
        return frame

    def png(self, frame: npt.NDArray[np.uint8]) -> bytes:
        """Encode a frame that `draw` has returned."""
        return self._encoder.encode(frame)

    def _draw_background(self) -> None:
        if self._titles is None:
            self.canvas.draw()
            self._titles = self._copy()
        self.canvas.restore_region(self._titles)
        for panel in self.panels:
            panel.draw_scale()
        self._background = self._copy()
        self.num_backgrounds += 1

    def _copy(self) -> Any:
        return self.canvas.copy_from_bbox(self.figure.bbox)

    def _tell_cell_size(self) -> None:
        size = self.block_map.blocks_per_cell
        self._map_title.set_text(
            f"KV-cache blocks, {size} in each cell" if size > 1 else "KV-cache blocks"
        )
        self._titles = None

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
