"""The tokens of each step against the budget."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from kernelserve_widgets.dashboard.dashboard_numbers import NUM_STEPS, DashboardNumbers
from kernelserve_widgets.dashboard.inks import Inks
from kernelserve_widgets.dashboard.palette import Indices
from kernelserve_widgets.dashboard.plot_panel import Box, PlotPanel, write
from kernelserve_widgets.drawing.theme import Theme

__all__ = ["STRIP_HEIGHT", "BudgetPlot"]

_HEADROOM = 1.18
_MARK_LEVEL = 1.09
"""Where preemptions are marked, in budgets."""
_MARK_SIZE = 7
_STRIP_TOP, STRIP_HEIGHT = 6, 11
"""Pixels below the axis where refusals are marked, and where that ends."""
_DASH, _DASH_AND_GAP = 5, 8
_ALARMS = ("blocks", "preempted_step")

_Numbers = npt.NDArray[np.float64]


class BudgetPlot(PlotPanel):
    """Decode tokens, prefill tokens on top of them, the budget as a line; preemptions above, refusals below.

    The y axis is a square root: one decode token is still to be seen under a budget of thousands. x counts steps back
    from the last one, which ends at 0. Scale and legend are drawn by matplotlib, the bars are painted over them.
    """

    def __init__(
        self, figure: Figure, box: Box, theme: Theme, inks: Inks, *, scale: int = 1
    ) -> None:
        super().__init__(figure, box, theme, "Tokens in each of the last 200 steps")
        self.axes.set_xlim(-NUM_STEPS, 0)
        self.axes.set_yscale("function", functions=(_root, np.square))
        self._scale = scale
        self._step_width = round(box.width) * scale // NUM_STEPS
        self._num_rows = round(box.height) * scale
        self._prefill_ink, self._decode_ink = inks.of(theme.prefill), inks.of(theme.decode)
        self._budget_ink = inks.of(theme.muted)
        self._alarm_ink, self._wait_ink = inks.of(theme.alarm), inks.of(theme.waiting)
        self._numbers = DashboardNumbers()
        self._top = 0
        self._legend(figure)

    def update(self, numbers: DashboardNumbers) -> bool:
        """Take in the numbers. Returns whether the background has changed."""
        self._numbers = numbers
        top = max(numbers.budget, default=1)
        if top == self._top:
            return False
        self._top = top
        ticks = sorted({0, round(top / 16), round(top / 4), top})
        self.set_ticks((0, top * _HEADROOM), [(value, f"{value:,}") for value in ticks])
        return True

    def paint(self, place: Indices) -> None:
        """Paint over the background: the box and the pixels below it where refusals are marked, as inks.

        A step is `place.shape[1] // 200` pixels wide; n tokens are as high as `height_of` says.
        """
        count = len(self._numbers.steps)
        if not count:
            return
        place = place[:, place.shape[1] - count * self._step_width :]
        self._paint_bars(place[: self._num_rows])
        self._paint_budget(place)
        self._paint_preemptions(place)
        self._paint_refusals(place[self._num_rows + _STRIP_TOP * self._scale :])

    def height_of(self, tokens: _Numbers) -> npt.NDArray[np.int16]:
        """Return how many pixels high bars of so many tokens are: at least one if there are any."""
        heights = np.rint(self._num_rows * np.sqrt(tokens / (self._top * _HEADROOM)))
        least: npt.NDArray[np.int16] = np.maximum(heights, tokens > 0).astype(np.int16)
        return least

    def _paint_bars(self, place: Indices) -> None:
        decode = np.array(self._numbers.decode, np.float64)
        low = self.height_of(decode)
        high = self.height_of(decode + np.array(self._numbers.prefill, np.float64))
        above_axis = np.arange(self._num_rows, 0, -1, dtype=np.int16)[:, None]
        is_bar = (above_axis <= high.repeat(self._step_width)).view(np.uint8)
        is_decode = (above_axis <= low.repeat(self._step_width)).view(np.uint8)
        # Sums of bytes take a fifth of the time of assignments under a mask; 256 is 0 to them.
        place *= 1 - is_bar
        place += is_bar * np.uint8(self._prefill_ink)
        place += is_decode * np.uint8((self._decode_ink - self._prefill_ink) % 256)

    def _paint_budget(self, place: Indices) -> None:
        rows = self._num_rows - self.height_of(np.array(self._numbers.budget, np.float64))
        columns = np.arange(place.shape[1])
        # Counted from the right edge, where the last step always is.
        columns = columns[columns[::-1] // self._scale % _DASH_AND_GAP < _DASH]
        row_of_column = rows.repeat(self._step_width)[columns]
        for thickness in range(self._scale):
            place[row_of_column + thickness, columns] = self._budget_ink
        for step in np.flatnonzero(np.diff(rows)) + 1:
            from_row, to_row = sorted((rows[step - 1], rows[step]))
            place[from_row:to_row, step * self._step_width] = self._budget_ink

    def _paint_preemptions(self, place: Indices) -> None:
        size = _MARK_SIZE * self._scale
        top = (
            self._num_rows - int(self.height_of(np.array([self._top * _MARK_LEVEL]))[0]) - size // 2
        )
        for step in np.flatnonzero(np.array(self._numbers.preempted)):
            middle = int(step * self._step_width + self._step_width // 2)
            for row in range(size):
                half = (size - row) // 2
                place[top + row, max(0, middle - half) : middle + half + 1] = self._alarm_ink

    def _paint_refusals(self, place: Indices) -> None:
        if not any(self._numbers.refused):
            return
        alarms = np.array([reason in _ALARMS for reason in self._numbers.refused], bool)
        waits = np.array([bool(reason) for reason in self._numbers.refused], bool) & ~alarms
        place[:, waits.repeat(self._step_width)] = self._wait_ink
        place[:, alarms.repeat(self._step_width)] = self._alarm_ink

    def _legend(self, figure: Figure) -> None:
        theme, box = self.theme, self.box
        entries = [
            ("■", theme.decode, "decode", 0),
            ("■", theme.prefill, "prefill", 58),
            ("╌", theme.muted, "budget", 110),
            ("▼", theme.alarm, "preemption", 164),
            ("━", theme.waiting, "waits: seat, budget", 240),
            ("━", theme.alarm, "blocks", 350),
        ]
        for mark, colour, text, offset in entries:
            y = box.top + box.height + 24
            write(figure, box.left + offset - 2, y, mark, colour)
            write(figure, box.left + offset + 11, y, text, theme.muted, size=7)


def _root(values: _Numbers) -> _Numbers:
    return np.sqrt(np.maximum(values, 0.0))
