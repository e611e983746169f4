"""One plot of the dashboard: a box with a title, grid lines and artists that change with every frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from kernelserve_widgets.drawing.theme import Colour, Theme

__all__ = ["Box", "PlotPanel", "write"]

_MAX_TICKS = 6


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels at scale 1, from the upper left corner of the picture."""

    left: float
    top: float
    width: float
    height: float


_LABEL_WIDTH, _CLEARANCE = 44, 9


class PlotPanel:
    """Axes without matplotlib's ticks, so that nothing depends on the user's settings and little is drawn.

    `artists` are drawn when the numbers change, grid and labels when `set_ticks` has changed them, the rest once.
    """

    def __init__(self, figure: Figure, box: Box, theme: Theme, title: str) -> None:
        width, height = size_of(figure)
        self.theme = theme
        self.box = box
        self.artists: list[Artist] = []
        self.axes = figure.add_axes(
            (
                box.left / width,
                1 - (box.top + box.height) / height,
                box.width / width,
                box.height / height,
            )
        )
        self.axes.set_axis_off()
        self._figure = figure
        self._grid = [self._line(theme.grid, 1.0, animated=True) for _ in range(_MAX_TICKS)]
        self._labels = [
            write(figure, box.left - 6, box.top, "", theme.muted, align="right")
            for _ in range(_MAX_TICKS)
        ]
        for label in self._labels:
            label.set_animated(True)
        write(figure, box.left, box.top - 18, title, theme.text, size=8.5, bold=True)

    def set_ticks(self, limits: tuple[float, float], ticks: Sequence[tuple[float, str]]) -> None:
        """Set the range of y, and label some values of it."""
        self.axes.set_ylim(*limits)
        to_y = self.axes.transData.transform
        _, height = size_of(self._figure)
        dpi_scale = self._figure.dpi / 100
        left, right = self.axes.get_xlim()
        for index, (line, label) in enumerate(zip(self._grid, self._labels, strict=True)):
            value, text = ticks[index] if index < len(ticks) else (limits[0], "")
            line.set_data([left, right], [value, value])
            label.set_text(text)
            label.set_y(float(to_y((left, value))[1]) / dpi_scale / height)

    @property
    def changing(self) -> tuple[slice, slice]:
        """Rows and columns of pixels with all that changes: labels, grid and artists."""
        box, scale = self.box, self._figure.dpi / 100
        right = box.left + box.width + _CLEARANCE
        edges = (
            box.top - _CLEARANCE,
            box.top + box.height + _CLEARANCE,
            box.left - _LABEL_WIDTH,
            right,
        )
        top, bottom, left, right = (round(edge * scale) for edge in edges)
        return slice(top, bottom), slice(left, right)

    def add_line(self, colour: Colour, width: float, **style: Any) -> Line2D:
        """Add a line to draw in each frame."""
        line = self._line(colour, width, animated=True, **style)
        self.artists.append(line)
        return line

    def add_area(self, colour: Colour, **style: Any) -> PathPatch:
        """Add a filled shape to draw in each frame."""
        options: dict[str, Any] = {"linewidth": 0, "antialiased": False, "animated": True} | style
        patch = PathPatch(Path(np.zeros((1, 2))), facecolor=colour, **options)
        self.axes.add_artist(patch)
        self.artists.append(patch)
        return patch

    def draw_scale(self) -> None:
        """Draw grid lines and labels."""
        for line in self._grid:
            self.axes.draw_artist(line)
        for label in self._labels:
            if label.get_text():
                self._figure.draw_artist(label)

    def draw(self) -> None:
        """Draw the artists over the scale."""
        for artist in self.artists:
            self.axes.draw_artist(artist)

    def _line(self, colour: Colour, width: float, **style: Any) -> Line2D:
        options: dict[str, Any] = {"linestyle": "-", "marker": "", "antialiased": True} | style
        line = Line2D([], [], color=colour, linewidth=width, **options)
        self.axes.add_artist(line)
        line.set_clip_path(self.axes.patch)
        return line


def write(
    figure: Figure,
    left: float,
    middle: float,
    text: str,
    colour: Colour,
    *,
    size: float = 7.5,
    bold: bool = False,
    align: str = "left",
) -> Any:
    """Write text into the background, its middle `middle` pixels below the top."""
    width, height = size_of(figure)
    font = FontProperties(family="DejaVu Sans", size=size, weight="bold" if bold else "normal")
    return figure.text(
        left / width,
        1 - middle / height,
        text,
        color=colour,
        fontproperties=font,
        usetex=False,
        ha=align,
        va="center",
    )


def size_of(figure: Figure) -> tuple[float, float]:
    """Return width and height in pixels at scale 1."""
    width, height = figure.get_size_inches()
    return float(width) * 100, float(height) * 100
