"""Generated tokens a second, over the last half minute."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure
from matplotlib.path import Path

from kernelserve_widgets.dashboard.dashboard_numbers import DashboardNumbers
from kernelserve_widgets.dashboard.plot_panel import Box, PlotPanel, write
from kernelserve_widgets.dashboard.token_window import WINDOW_S
from kernelserve_widgets.dashboard.units import rate
from kernelserve_widgets.drawing.theme import Theme

__all__ = ["ThroughputPlot"]

_SHRINK = 4
"""The axis gets shorter when everything is below a fourth of it."""


class ThroughputPlot(PlotPanel):
    """Tokens of all requests in halves of a second. x is the time before the end of the last step."""

    def __init__(self, figure: Figure, box: Box, theme: Theme) -> None:
        super().__init__(figure, box, theme, "Tokens a second over 30 s")
        self.axes.set_xlim(-WINDOW_S, 0)
        self.area = self.add_area(theme.accent, alpha=0.25)
        self.line = self.add_line(theme.accent, 1.6)
        self._top = 0.0
        self._scale_to(10.0)
        y = box.top + box.height + 15
        write(figure, box.left, y, "30 s before the last step", theme.muted, size=7)
        write(figure, box.left + box.width, y, "last step", theme.muted, size=7, align="right")

    def update(self, numbers: DashboardNumbers) -> bool:
        """Take in the numbers. Returns whether the background has changed."""
        ages = -np.array([one.age for one in numbers.bins], np.float64)
        rates = np.array([one.tokens_per_second for one in numbers.bins], np.float64)
        self.line.set_data(ages, rates)
        if len(ages):
            ends = np.array([[ages[0], 0.0], [ages[-1], 0.0]])
            points = np.concatenate([ends[:1], np.stack([ages, rates], axis=1), ends[1:]])
            self.area.set_path(Path(points))
        else:
            self.area.set_path(Path(np.zeros((1, 2))))
        highest = float(rates.max()) if len(rates) else 0.0
        if self._top / _SHRINK <= highest <= self._top or (highest == 0 and self._top):
            return False
        return self._scale_to(_nice(max(highest * 1.1, 1.0)))

    def _scale_to(self, top: float) -> bool:
        if top == self._top:
            return False
        self._top = top
        self.set_ticks((0, top), [(value, rate(value)) for value in (0.0, top / 2, top)])
        return True


def _nice(value: float) -> float:
    """Return the least of 1, 2, 5, 10, 20, ... that is not below."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= value)
