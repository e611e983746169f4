"""How long tokens take: the time between two of them, and the time to the first."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure

from kernelserve_widgets.dashboard.dashboard_numbers import DashboardNumbers
from kernelserve_widgets.dashboard.plot_panel import Box, PlotPanel, write
from kernelserve_widgets.dashboard.token_window import WINDOW_S
from kernelserve_widgets.dashboard.units import duration
from kernelserve_widgets.drawing.theme import Theme

__all__ = ["LatencyPlot"]

_START = (1e-3, 1.0)
_CLEARANCE = 0.85
"""A value this close above a decade gets the one below too, so that its line is not on the edge."""


class LatencyPlot(PlotPanel):
    """Median and 95th percentile of the gaps between tokens, in halves of a second; first tokens as marks.

    A model that sees has another kind of mark: how long the encoder took in each step that encoded images.

    x is the time before the end of the last step, y is logarithmic over whole decades of seconds.
    """

    def __init__(self, figure: Figure, box: Box, theme: Theme) -> None:
        super().__init__(figure, box, theme, "Latency of tokens over 30 s")
        self.axes.set_xlim(-WINDOW_S, 0)
        self.axes.set_yscale("log")
        self.slow = self.add_line(theme.muted, 1.0)
        self.median = self.add_line(theme.accent, 1.8)
        self.first = self.add_line(
            theme.decode, 0, marker="D", markersize=4, markeredgewidth=0, linestyle="none"
        )
        self.first.set_clip_on(False)
        self.encoder = self.add_line(
            theme.text, 0, marker="^", markersize=5, markeredgewidth=0, linestyle="none"
        )
        self.encoder.set_clip_on(False)
        self._limits = (0.0, 0.0)
        self._scale_to(_START)
        self._legend(figure)

    def show_encoder(self, sees: bool) -> None:
        """Let the legend tell of the encoder, or not."""
        for text in self._encoder_legend:
            text.set_visible(sees)

    def update(self, numbers: DashboardNumbers) -> bool:
        """Take in the numbers. Returns whether the background has changed."""
        ages = -np.array([one.age for one in numbers.bins], np.float64)
        nan = math.nan
        slow = [nan if one.slow_latency is None else one.slow_latency for one in numbers.bins]
        median = [nan if one.latency is None else one.latency for one in numbers.bins]
        self.slow.set_data(ages, slow)
        self.median.set_data(ages, median)
        self.first.set_data(
            [-age for age, _ in numbers.first_tokens], [value for _, value in numbers.first_tokens]
        )
        encodes = numbers.encoder.encodes if numbers.encoder else []
        self.encoder.set_data([-age for age, _ in encodes], [value for _, value in encodes])
        values = [v for v in slow + median if v == v and v > 0]
        values += [value for _, value in (*numbers.first_tokens, *encodes) if value > 0]
        return self._scale_to(_decades(values, self._limits))

    def _scale_to(self, limits: tuple[float, float]) -> bool:
        if limits == self._limits:
            return False
        self._limits = limits
        low, high = (round(math.log10(limit)) for limit in limits)
        self.set_ticks(limits, [(10.0**power, _label(power)) for power in range(low, high + 1)])
        return True

    def _legend(self, figure: Figure) -> None:
        theme, box = self.theme, self.box
        y = box.top + box.height + 15
        write(figure, box.left, y, "━", theme.accent)
        write(figure, box.left + 13, y, "between tokens, median", theme.muted, size=7)
        write(figure, box.left + 152, y, "━", theme.muted)
        write(figure, box.left + 165, y, "95 %", theme.muted, size=7)
        write(figure, box.left + 204, y, "◆", theme.decode)
        write(figure, box.left + 217, y, "first token", theme.muted, size=7)
        self._encoder_legend = [
            write(figure, box.left + 290, y, "▲", theme.text),
            write(figure, box.left + 303, y, "encoder", theme.muted, size=7),
        ]
        self.show_encoder(False)


def _decades(values: list[float], limits: tuple[float, float]) -> tuple[float, float]:
    """Return whole decades around the values: at least two of them, and the old ones where they still do."""
    if not values:
        return limits
    low = math.floor(math.log10(min(values) * _CLEARANCE))
    high = math.ceil(math.log10(max(values)))
    old_low, old_high = (round(math.log10(limit)) for limit in limits)
    if old_low <= low and high <= old_high and (old_high - old_low) - (high - low) <= 2:
        return limits
    high = max(high, low + 2)
    low = max(low, high - 5)
    return 10.0**low, 10.0**high


def _label(power: int) -> str:
    return (
        duration(10.0**power).replace(".0", "").replace(".00", "")
        if power < 0
        else f"{10**power} s"
    )
