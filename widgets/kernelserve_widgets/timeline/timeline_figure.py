"""The picture of a timeline, and its marker that moves without drawing the rest again."""

from __future__ import annotations

import io
import textwrap
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.ticker import MaxNLocator
from PIL import Image

from kernelserve.protocol import StepRecord
from kernelserve_widgets.drawing.theme import Theme, theme_of
from kernelserve_widgets.history import RequestLife, StepHistory, count_of, step_end
from kernelserve_widgets.timeline.budget_strip import draw_budget
from kernelserve_widgets.timeline.picture_figure import make_picture
from kernelserve_widgets.timeline.request_bars import RequestBars
from kernelserve_widgets.timeline.row_layout import RowLayout
from kernelserve_widgets.timeline.time_axis import TimeAxis

__all__ = ["TimelineFigure"]

_CAPTION_CHARS, _MAX_CAPTION_LINES = 128, 3


class TimelineFigure:
    """Draws the lives and budgets of the steps around one; times are seconds of work on a TimeAxis.

    `figure` is complete and may be changed; `png` gives frames for a slider at a fraction of the cost of a new one.
    """

    def __init__(
        self,
        history: StepHistory,
        *,
        around: int,
        num_steps: int | None = None,
        describe: Callable[[int], str] | None = None,
        theme: Theme | None = None,
    ) -> None:
        self._history = history
        self._theme = theme or theme_of("light")
        self._describe = describe
        self._records = _window(list(history.records), around, num_steps)
        first, last = self._records[0], self._records[-1]
        lives = [life for life in history.requests.values() if _is_in(life, first, last)]
        lives.sort(key=lambda life: life.queued_at)
        self._is_whole = num_steps is None or len(self._records) == len(history.records)
        every = [life.queued_at for life in lives] if self._is_whole else []
        self._axis = TimeAxis(self._records, min([first.timestamp, *every]))
        self._layout = RowLayout.of(lives, history.now)
        self._background: Any = None
        self.step = around
        self.figure, self._requests, self._strip = make_picture(
            self._layout, len(self._caption_lines(around)), self._theme
        )
        self._canvas = FigureCanvasAgg(self.figure)
        self._draw_all(lives)
        self.move(around)

    def has(self, step: int) -> bool:
        """Whether the step is in the picture."""
        return self._records[0].step <= step <= self._records[-1].step

    def move(self, step: int) -> None:
        """Put the marker, and the caption if there is one, to another step of the window."""
        record = self._nearest(step)
        self.step = record.step
        start, end = self._axis.at(record.timestamp), self._axis.at(step_end(record))
        for span in self._spans:
            span.set_bounds(start, 0, end - start, 1)
        left, right = self._requests.get_xlim()
        place = (start - left) / (right - left)
        self._label.set_x(min(max(start, left), right))
        self._label.set_horizontalalignment(
            "left" if place < 0.06 else "right" if place > 0.94 else "center"
        )
        self._label.set_text(f"step {record.step:,}")
        if self._caption is not None:
            self._caption.set_text("\n".join(self._caption_lines(record.step)))

    def png(self) -> bytes:
        """Return the picture as it is now. The first call draws everything, later ones only the marker."""
        canvas = self._canvas
        moving = [*self._spans, self._label, *([self._caption] if self._caption else [])]
        if self._background is None:
            for artist in moving:
                artist.set_animated(True)
            canvas.draw()
            self._background = canvas.copy_from_bbox(self.figure.bbox)
        canvas.restore_region(self._background)
        for artist in moving:
            self.figure.draw_artist(artist)
        size = canvas.get_width_height()
        image = Image.frombuffer("RGBA", size, canvas.buffer_rgba()).convert("RGB")
        buffer = io.BytesIO()
        image.save(buffer, format="png", compress_level=4)
        return buffer.getvalue()

    def _draw_all(self, lives: list[RequestLife]) -> None:
        theme, axis, requests, strip = self._theme, self._axis, self._requests, self._strip
        first, last = axis.at(self._records[0].timestamp), axis.length
        begin = 0.0 if self._is_whole else first
        room = max(last - begin, 1e-6) * 0.006
        requests.set_xlim(begin - room, last + room)
        requests.set_ylim(max(1, self._layout.num_rows) - 0.5, -0.5)
        bars = RequestBars(requests, axis, self._history.names, theme)
        bars.draw(lives, self._layout, self._history.now)
        draw_budget(strip, axis, self._records, theme)
        self._draw_pauses()
        requests.tick_params(axis="x", labelbottom=False)
        strip.yaxis.set_major_locator(MaxNLocator(nbins=3, integer=True))
        strip.set_ylabel("tokens\nper step", fontsize=8, color=theme.muted)
        since = "" if self._is_whole else f" since step {self._records[0].step:,}"
        cut = ", pauses cut short" if axis.pauses else ""
        strip.set_xlabel(f"seconds{since}{cut}", fontsize=8, color=theme.muted)
        self._write_heading(bars, lives)
        self._spans = [
            axes.axvspan(begin, begin, color=theme.text, alpha=0.28, linewidth=1.2)
            for axes in (requests, strip)
        ]
        self._label = requests.text(
            begin,
            1.0,
            "",
            transform=requests.get_xaxis_transform(),
            va="bottom",
            fontsize=8,
            fontweight="bold",
            color=theme.text,
        )
        lines = self._caption_lines(self.step)
        self._caption = None
        if lines:
            at = (self._requests.get_position().x0, 0.08 / self.figure.get_figheight())
            self._caption = self.figure.text(*at, "", va="bottom", fontsize=8.5, color=theme.text)

    def _draw_pauses(self) -> None:
        for pause in self._axis.pauses:
            for axes in (self._requests, self._strip):
                axes.axvspan(pause.start, pause.end, color=self._theme.panel, linewidth=0)
            self._requests.text(
                (pause.start + pause.end) / 2,
                0.5,
                f"{_seconds(pause.seconds)} pause",
                transform=self._requests.get_xaxis_transform(),
                rotation=90,
                ha="center",
                va="center",
                fontsize=7,
                color=self._theme.muted,
                clip_on=True,
            )

    def _write_heading(self, bars: RequestBars, lives: list[RequestLife]) -> None:
        theme, height = self._theme, self.figure.get_figheight()
        left, right = self._requests.get_position().intervalx
        top = 1 - 0.1 / height
        first, last = self._records[0], self._records[-1]
        hidden = f", {self._layout.num_hidden:,} not drawn" if self._layout.num_hidden else ""
        text = (
            f"{count_of(len(lives), 'request')}{hidden} \N{MIDDLE DOT} "
            f"steps {first.step:,}\N{EN DASH}{last.step:,}"
        )
        self.figure.text(left, top, text, va="top", fontsize=9, color=theme.text)
        style: dict[str, Any] = {
            "frameon": False,
            "fontsize": 8,
            "labelcolor": theme.muted,
            "handlelength": 1.6,
            "columnspacing": 1.4,
            "borderaxespad": 0.2,
        }
        self.figure.legend(
            handles=bars.legend(lives),
            loc="upper right",
            bbox_to_anchor=(right, 1 - 0.02 / height),
            ncols=7,
            **style,
        )
        self.figure.legend(
            handles=self._strip.get_legend_handles_labels()[0],
            loc="upper right",
            bbox_to_anchor=(right, self._strip.get_position().y0 - 0.2 / height),
            ncols=2,
            **style,
        )

    def _caption_lines(self, step: int) -> list[str]:
        if self._describe is None:
            return []
        lines = textwrap.wrap(self._describe(step), _CAPTION_CHARS)
        if len(lines) > _MAX_CAPTION_LINES:
            lines = lines[:_MAX_CAPTION_LINES]
            lines[-1] = lines[-1][: _CAPTION_CHARS - 2] + " \N{HORIZONTAL ELLIPSIS}"
        return lines

    def _nearest(self, step: int) -> StepRecord:
        return min(self._records, key=lambda record: abs(record.step - step))


def _window(records: list[StepRecord], around: int, num_steps: int | None) -> list[StepRecord]:
    """Return `num_steps` records with `around` in their middle, as far as there are any."""
    if num_steps is None or num_steps >= len(records):
        return records
    middle = bisect_left(records, around, key=lambda record: record.step)
    first = min(max(0, middle - num_steps // 2), len(records) - num_steps)
    return records[first : first + max(1, num_steps)]


def _is_in(life: RequestLife, first: StepRecord, last: StepRecord) -> bool:
    ended = life.ended_at is not None and life.ended_at <= first.timestamp
    return not ended and life.queued_at < step_end(last)


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.0f} min"
