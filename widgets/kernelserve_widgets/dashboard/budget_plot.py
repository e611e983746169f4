"""The tokens of each step against the budget."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.transforms import blended_transform_factory

from kernelserve_widgets.dashboard.dashboard_numbers import NUM_STEPS, DashboardNumbers
from kernelserve_widgets.dashboard.plot_panel import Box, PlotPanel, bars, write
from kernelserve_widgets.drawing.theme import Theme

__all__ = ["BudgetPlot"]

_HEADROOM = 1.18
_STRIP = (-0.055, -0.03)
"""Where refusals are marked, as shares of the height."""
_ALARMS = ("blocks", "preempted_step")


class BudgetPlot(PlotPanel):
    """Decode tokens, prefill tokens on top of them, the budget as a line; preemptions above, refusals below.

    The y axis is a square root: one decode token is still to be seen under a budget of thousands. x counts steps back
    from the last one, which ends at 0.
    """

    def __init__(self, figure: Figure, box: Box, theme: Theme) -> None:
        super().__init__(figure, box, theme, "Tokens in each of the last 200 steps")
        self.axes.set_xlim(-NUM_STEPS, 0)
        self.axes.set_yscale("function", functions=(_root, np.square))
        self.decode = self.add_area(theme.decode)
        self.prefill = self.add_area(theme.prefill)
        self.budget = self.add_line(theme.muted, 1.2, linestyle=(0, (4, 2)))
        self.preempted = self.add_line(
            theme.alarm, 0, marker="v", markersize=5, markeredgewidth=0, linestyle="none"
        )
        below = blended_transform_factory(self.axes.transData, self.axes.transAxes)
        self.waits = self.add_area(theme.waiting, transform=below, clip_on=False)
        self.starves = self.add_area(theme.alarm, transform=below, clip_on=False)
        self._top = 0
        self._legend(figure)

    def update(self, numbers: DashboardNumbers) -> bool:
        """Take in the numbers. Returns whether the background has changed."""
        count = len(numbers.steps)
        left = np.arange(-count, 0, dtype=np.float64)
        zero = np.zeros(count)
        decode = np.array(numbers.decode, np.float64)
        total = decode + np.array(numbers.prefill, np.float64)
        self.decode.set_path(bars(left, zero, decode))
        self.prefill.set_path(bars(left, decode, total))
        self.budget.set_data(
            np.stack([left, left + 1], axis=1).ravel(), np.repeat(numbers.budget, 2)
        )
        marks = np.flatnonzero(np.array(numbers.preempted))
        top = max(numbers.budget, default=1)
        self.preempted.set_data(left[marks] + 0.5, np.full(len(marks), top * 1.09))
        alarms = np.array([reason in _ALARMS for reason in numbers.refused], bool)
        waits = np.array([bool(reason) for reason in numbers.refused], bool) & ~alarms
        for area, where in ((self.waits, waits), (self.starves, alarms)):
            low = np.full(int(where.sum()), _STRIP[0])
            area.set_path(bars(left[where], low, low + _STRIP[1] - _STRIP[0]))
        return self._scale_to(top)

    def _scale_to(self, top: int) -> bool:
        if top == self._top:
            return False
        self._top = top
        ticks = sorted({0, round(top / 16), round(top / 4), top})
        self.set_ticks((0, top * _HEADROOM), [(value, f"{value:,}") for value in ticks])
        return True

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


def _root(values: np.typing.NDArray[np.float64]) -> np.typing.NDArray[np.float64]:
    return np.sqrt(np.maximum(values, 0.0))
