"""The empty page of a timeline: a figure with room for the requests, the budget and a caption."""

from __future__ import annotations

import io

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kernelserve_widgets.drawing.theme import Theme
from kernelserve_widgets.timeline.row_layout import RowLayout

__all__ = ["PictureFigure", "make_picture"]

_DPI = 100
_WIDTH = 9.6
_ROW, _SHARED_ROW, _LEAST = 0.24, 0.17, 0.5
_STRIP = 0.85
_TOP, _BETWEEN, _BOTTOM = 0.62, 0.12, 0.5
_LEFT, _RIGHT = 0.95, 0.2
_CAPTION_LINE = 0.19
"""Inches."""


class PictureFigure(Figure):
    """A figure that a notebook shows as a picture, without pyplot having set up anything."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


def make_picture(
    layout: RowLayout, num_caption_lines: int, theme: Theme
) -> tuple[PictureFigure, Axes, Axes]:
    """Return a figure as high as its rows and caption ask for, the axes of the requests, and those of the budget."""
    rows = max(_LEAST, layout.num_rows * (_SHARED_ROW if layout.is_shared else _ROW))
    bottom = _BOTTOM + num_caption_lines * _CAPTION_LINE
    height = _TOP + rows + _BETWEEN + _STRIP + bottom
    figure = PictureFigure(figsize=(_WIDTH, height), dpi=_DPI, facecolor=theme.background)
    left, width = _LEFT / _WIDTH, 1 - (_LEFT + _RIGHT) / _WIDTH
    above = (bottom + _STRIP + _BETWEEN) / height
    requests = figure.add_axes((left, above, width, rows / height))
    box = (left, bottom / height, width, _STRIP / height)
    strip = figure.add_axes(box, sharex=requests)
    for axes in (requests, strip):
        axes.set_facecolor(theme.background)
        axes.tick_params(length=0, labelsize=8, labelcolor=theme.muted)
        axes.spines[:].set_visible(False)
        axes.grid(axis="x", color=theme.grid, linewidth=0.6)
        axes.set_axisbelow(True)
    return figure, requests, strip
