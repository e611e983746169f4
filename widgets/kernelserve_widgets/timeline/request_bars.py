"""Draws the lives of requests as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelserve_widgets.drawing.theme import Theme
from kernelserve_widgets.history import RequestLife, RequestNames, SpanKind
from kernelserve_widgets.timeline.row_layout import RowLayout
from kernelserve_widgets.timeline.time_axis import TimeAxis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["RequestBars"]

_Colour = tuple[float, float, float]
_BLACK: _Colour = (0.0, 0.0, 0.0)
_WHITE: _Colour = (1.0, 1.0, 1.0)

_HEIGHTS: dict[SpanKind, float] = {
    "queued": 0.16,
    "preempted": 0.42,
    "decode": 0.66,
    "prefill": 0.66,
}
"""Share of a row; drawn in this order, so that short prefills stay visible."""
_IMAGE_HEIGHT = 0.22
_TINT = 0.55
_CHAR_PIXELS = 5.2


class RequestBars:
    """Prefill in the colour of the request, decode in a tint of it, queued a thin line, preempted hatched.

    Images that were encoded are dark bars in the prefill, those found in the encoder cache dark dots (`images/<kind>`).

    All bars of a kind are one collection with the gid `bars/<kind>`: one box for each span, request by request.
    """

    def __init__(self, axes: Axes, axis: TimeAxis, names: RequestNames, theme: Theme) -> None:
        self._axes = axes
        self._axis = axis
        self._names = names
        self._theme = theme

    def draw(self, lives: list[RequestLife], layout: RowLayout, now: float) -> None:
        """Draw the lives that have a row; spans that go on end at `now`."""
        lives = [life for life in lives if life.request_id in layout.rows]
        for kind in _HEIGHTS:
            self._draw_kind(kind, lives, layout, now)
        self._draw_images(lives, layout)
        self._draw_aborts(lives, layout)
        if layout.is_shared:
            self._axes.set_yticks([])
            for life in lives:
                self._label_inside(life, layout.rows[life.request_id], now)
            return
        rows = [layout.rows[life.request_id] for life in lives]
        self._axes.set_yticks(rows, [life.label for life in lives])
        for text, life in zip(self._axes.get_yticklabels(), lives, strict=True):
            colour = _rgb(self._names.colour(life.request_id))
            text.set_color(_mixed(colour, 0.25, _BLACK))

    def legend(self, lives: list[RequestLife]) -> list[Any]:
        """Return one sample of each kind of bar; those of images only if a life has some."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        theme, sample = self._theme, _rgb((72, 84, 104))
        images = [Line2D([], [], color=theme.text, linewidth=2.5, label="image encoded")]
        if any(life.num_found_images for life in lives):
            images.append(Line2D([], [], label="found", **self._dot()))
        cross: dict[str, Any] = {
            "marker": "x",
            "linestyle": "",
            "markersize": 5,
            "color": theme.alarm,
        }
        return [
            Line2D([], [], color=theme.cached_block, linewidth=3, label="queued"),
            Patch(label="prefill", **self._style("prefill", sample)),
            Patch(label="decode", **self._style("decode", sample)),
            Patch(label="preempted", **self._style("preempted", sample)),
            Line2D([], [], label="aborted", **cross),
            *(images if any(life.images for life in lives) else []),
        ]

    def _draw_kind(
        self, kind: SpanKind, lives: list[RequestLife], layout: RowLayout, now: float
    ) -> None:
        from matplotlib.collections import PolyCollection

        at, half = self._axis.at, _HEIGHTS[kind] / 2
        boxes, faces = [], []
        for life in lives:
            row = layout.rows[life.request_id]
            face = self._style(kind, _rgb(self._names.colour(life.request_id)))["facecolor"]
            for span in life.spans:
                if span.kind == kind:
                    left, right = at(span.start), at(min(span.end, max(now, span.start)))
                    top, bottom = row - half, row + half
                    boxes.append([(left, top), (right, top), (right, bottom), (left, bottom)])
                    faces.append(face)
        style = self._style(kind, _BLACK) | {"facecolor": faces}
        if kind in ("prefill", "decode"):
            style["edgecolor"] = faces  # keeps a short bar visible
        drawn = PolyCollection(boxes, gid=f"bars/{kind}", **style)
        self._axes.add_collection(drawn, autolim=False)

    def _draw_images(self, lives: list[RequestLife], layout: RowLayout) -> None:
        from matplotlib.collections import PolyCollection

        at, half, colour = self._axis.at, _IMAGE_HEIGHT / 2, self._theme.text
        uses = [(layout.rows[life.request_id], image) for life in lives for image in life.images]
        boxes = []
        for row, image in uses:
            if not image.is_hit:
                left, right, top, bottom = at(image.start), at(image.end), row - half, row + half
                boxes.append([(left, top), (right, top), (right, bottom), (left, bottom)])
        style: dict[str, Any] = {"facecolor": colour, "edgecolor": colour, "linewidth": 0.8}
        encoded = PolyCollection(boxes, gid="images/encoded", zorder=3, **style)
        self._axes.add_collection(encoded, autolim=False)
        found = [(at(image.start), row) for row, image in uses if image.is_hit]
        x, y = [place for place, _ in found], [row for _, row in found]
        self._axes.plot(x, y, gid="images/found", zorder=3, **self._dot())

    def _dot(self) -> dict[str, Any]:
        theme = self._theme
        edge = {"markeredgecolor": theme.background, "markeredgewidth": 0.6}
        return {"marker": "o", "linestyle": "", "markersize": 5, "color": theme.text, **edge}

    def _draw_aborts(self, lives: list[RequestLife], layout: RowLayout) -> None:
        aborted = [(life.request_id, life.ended_at) for life in lives if life.state == "aborted"]
        self._axes.plot(
            [self._axis.at(ended_at) for _, ended_at in aborted if ended_at is not None],
            [layout.rows[request_id] for request_id, _ in aborted],
            "x",
            color=self._theme.alarm,
            markersize=5,
            markeredgewidth=1.4,
            gid="bars/aborted",
        )

    def _style(self, kind: SpanKind, colour: _Colour) -> dict[str, Any]:
        theme = self._theme
        if kind == "queued":
            return {"facecolor": theme.cached_block, "linewidth": 0}
        if kind == "preempted":
            # The pattern is drawn in the colour of the edge.
            edge = {"edgecolor": theme.alarm, "linewidth": 0.6, "hatch": "/////"}
            return {"facecolor": theme.background, **edge}
        face = colour if kind == "prefill" else _mixed(colour, _TINT, _WHITE)
        return {"facecolor": face, "edgecolor": face, "linewidth": 0.5}

    def _label_inside(self, life: RequestLife, row: int, now: float) -> None:
        """Write the label onto the longest bar if there is room."""
        left, right = self._axes.get_xlim()
        pixels = self._axes.bbox.width / (right - left)
        bars = [span for span in life.spans if span.kind in ("prefill", "decode")]
        places = [
            (max(left, self._axis.at(span.start)), min(right, self._axis.at(min(span.end, now))))
            for span in bars
        ]
        start, end = max(places, key=lambda place: place[1] - place[0], default=(0.0, 0.0))
        if (end - start) * pixels > _CHAR_PIXELS * len(life.label) + 4:
            x = (start + end) / 2
            style: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 6.5}
            self._axes.text(x, row, life.label, color=self._theme.text, clip_on=True, **style)


def _rgb(colour: tuple[int, int, int]) -> _Colour:
    red, green, blue = colour
    return red / 255, green / 255, blue / 255


def _mixed(colour: _Colour, share: float, other: _Colour) -> _Colour:
    """Return a colour with `share` of another one in it."""
    red, green, blue = (a * (1 - share) + b * share for a, b in zip(colour, other, strict=True))
    return red, green, blue
