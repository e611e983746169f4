"""The whole dashboard as one PNG: what a notebook keeps, and what is shown where there are no widgets."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from kernelserve_widgets.dashboard.banded_png import BandedPng
from kernelserve_widgets.dashboard.dashboard_figure import FIGURE_HEIGHT, FIGURE_WIDTH
from kernelserve_widgets.dashboard.dashboard_numbers import DashboardNumbers
from kernelserve_widgets.dashboard.inks import Inks
from kernelserve_widgets.dashboard.palette import Palette, Pixels
from kernelserve_widgets.dashboard.panel_text import NO_REQUEST, Fact, Tile, facts, tiles
from kernelserve_widgets.dashboard.request_row import MAX_ROWS, RequestRow
from kernelserve_widgets.drawing.theme import Theme

__all__ = ["STILL_HEIGHT", "StillPicture", "still_height"]

_MARGIN, _GAP = 22, 8
_TILES_TOP, _TILE_HEIGHT = 40, 66
_ROWS_TOP, _ROW_HEIGHT = 120, 21
_FACTS_WIDTH = 258
_BAR_HEIGHT = 11
"""More for a fact with a share."""
_COMPRESSION = 6
_BELOW_ROWS = 16
STILL_HEIGHT = _ROWS_TOP + MAX_ROWS * _ROW_HEIGHT + _BELOW_ROWS + FIGURE_HEIGHT
"""Pixels at scale 1; more with an encoder, see `still_height`."""


def still_height(numbers: DashboardNumbers) -> int:
    """Return how high the picture of these numbers is, in pixels at scale 1."""
    return _panel_height(facts(numbers)) + FIGURE_HEIGHT


def _panel_height(all_facts: list[Fact]) -> int:
    bars = sum(_BAR_HEIGHT for fact in all_facts if fact.share is not None)
    rows = max(MAX_ROWS * _ROW_HEIGHT, len(all_facts) * _ROW_HEIGHT + bars)
    return _ROWS_TOP + rows + _BELOW_ROWS


class StillPicture:
    """Draws the words with Pillow above a frame of the figure, in the same places where the browser puts them."""

    def __init__(self, theme: Theme, *, scale: int = 1) -> None:
        self._theme = theme
        self._scale = scale
        folder = Path(mpl.get_data_path()) / "fonts" / "ttf"
        self._fonts = {
            (size, bold): ImageFont.truetype(
                str(folder / ("DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf")), size * scale
            )
            for size, bold in ((10, False), (11, False), (11, True), (17, True))
        }
        self._palette = Palette(Inks(theme).colours)

    def png(self, numbers: DashboardNumbers, title: str, frame: Pixels) -> bytes:
        """Return the picture of these numbers; `frame` is what DashboardFigure shows of them."""
        theme, all_facts = self._theme, facts(numbers)
        panel_height = _panel_height(all_facts)
        size = (FIGURE_WIDTH * self._scale, (panel_height + FIGURE_HEIGHT) * self._scale)
        image = Image.new("RGBA", size, theme.background)
        self._draw = ImageDraw.Draw(image)
        self._text(_MARGIN, 22, title, theme.muted)
        all_tiles = tiles(numbers)
        width = (FIGURE_WIDTH - 2 * _MARGIN + _GAP) / len(all_tiles) - _GAP
        for index, tile in enumerate(all_tiles):
            self._tile(_MARGIN + index * (width + _GAP), width, tile)
        for index, row in enumerate(numbers.rows or [NO_REQUEST]):
            self._row(_ROWS_TOP + index * _ROW_HEIGHT, row)
        top = float(_ROWS_TOP)
        for fact in all_facts:
            top = self._fact(top, fact)
        image.paste(Image.fromarray(frame), (0, panel_height * self._scale))
        self._palette.forget()
        png = BandedPng(*size, self._palette, level=_COMPRESSION)
        png.pixels[:] = self._palette.indices(np.asarray(image))
        return png.encode()

    def _tile(self, left: float, width: float, tile: Tile) -> None:
        theme, top = self._theme, _TILES_TOP
        self._rectangle(left, top, left + width, top + _TILE_HEIGHT, theme.panel, radius=6)
        self._text(left + 10, top + 14, tile.caption, theme.muted, size=10)
        self._text(left + 10, top + 34, tile.value, theme.text, size=17, bold=True)
        self._text(left + 10, top + 54, tile.note, theme.muted, size=10)

    def _row(self, top: float, row: RequestRow) -> None:
        theme, middle = self._theme, top + _ROW_HEIGHT / 2
        right = FIGURE_WIDTH - _MARGIN - _FACTS_WIDTH - 28
        if not row.label:
            self._text(_MARGIN, middle, row.text, theme.muted)
            return
        colour = "#{:02x}{:02x}{:02x}".format(*row.colour)
        ink = theme.text
        if row.has_ended:
            ink, colour = theme.muted, _mix(colour, theme.background)
        self._rectangle(_MARGIN, middle - 5, _MARGIN + 10, middle + 5, colour, radius=3)
        self._text(_MARGIN + 20, middle, row.label, ink, bold=True, width=84)
        self._text(_MARGIN + 114, middle, row.state, theme.muted)
        left, width = _MARGIN + 186, 112
        self._rectangle(left, middle - 4, left + width, middle + 4, theme.panel, radius=4)
        if row.computed:
            self._rectangle(
                left, middle - 4, left + width * row.computed, middle + 4, colour, radius=4
            )
        if row.cached:
            pale = _mix(colour, theme.background)
            self._rectangle(left, middle - 4, left + width * row.cached, middle + 4, pale, radius=4)
        self._text(left + width + 10, middle, row.text, ink, width=right - left - width - 10)

    def _fact(self, top: float, fact: Fact) -> float:
        """Draw a line; return where the next one begins."""
        theme, right = self._theme, FIGURE_WIDTH - _MARGIN
        left = right - _FACTS_WIDTH
        middle = top + _ROW_HEIGHT / 2
        self._text(left, middle, fact.caption, theme.muted)
        self._text(right, middle, fact.value, theme.text, anchor="rm")
        if fact.share is None:
            return top + _ROW_HEIGHT
        bar = top + _ROW_HEIGHT + 2
        self._rectangle(left, bar, right, bar + 5, theme.panel, radius=2)
        for share, colour in (
            (fact.share + fact.kept, theme.cached_block),
            (fact.share, theme.accent),
        ):
            if share:
                end = left + _FACTS_WIDTH * min(1.0, share)
                self._rectangle(left, bar, end, bar + 5, colour, radius=2)
        return top + _ROW_HEIGHT + _BAR_HEIGHT

    def _text(
        self,
        left: float,
        middle: float,
        text: str,
        colour: str,
        *,
        size: int = 11,
        bold: bool = False,
        anchor: str = "lm",
        width: float | None = None,
    ) -> None:
        font = self._fonts[size, bold]
        if width is not None:
            while text and font.getlength(text) > width * self._scale:
                text = text[:-2].rstrip(" …") + "…" if len(text) > 2 else ""
        at = (left * self._scale, middle * self._scale)
        self._draw.text(at, text, font=font, fill=colour, anchor=anchor)

    def _rectangle(
        self, left: float, top: float, right: float, bottom: float, colour: str, radius: float = 0
    ) -> None:
        scale = self._scale
        if right - left < 2 * radius:
            radius = max(0.0, (right - left) / 2)
        corners = (left * scale, top * scale, max(left, right) * scale - 1, bottom * scale - 1)
        if corners[2] >= corners[0]:
            self._draw.rounded_rectangle(corners, radius * scale, fill=colour)


def _mix(colour: str, other: str) -> str:
    """Return the colour in the middle of two."""
    pairs = zip(bytes.fromhex(colour[1:]), bytes.fromhex(other[1:]), strict=True)
    return "#" + "".join(f"{(a + b) // 2:02x}" for a, b in pairs)
