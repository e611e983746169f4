"""The horizontal axis of a timeline: seconds of work, with the pauses cut short."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from kernelserve.protocol import StepRecord
from kernelserve_widgets.history import step_end

__all__ = ["Pause", "TimeAxis"]

_LONG, _LONG_STEPS = 0.04, 2
"""A pause is cut if it is longer than this share of all the time in which steps ran, and than two steps on average."""
_SHORT = 0.02
"""Share that it takes on the axis then."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A stretch without steps that is drawn shorter than it was: from `start` to `end` on the axis."""

    start: float
    end: float
    seconds: float


class TimeAxis:
    """Maps the engine's clock to the axis; linear but for long pauses between steps, during which nothing happens.

        clock   ###.##........................####.##
        axis    ###.##...####.##
                      pause

    `begin` is where the axis has its 0, in seconds of the engine's clock.
    """

    def __init__(self, records: Sequence[StepRecord], begin: float) -> None:
        busy = sum(step_end(record) - record.timestamp for record in records)
        limit = busy * max(_LONG, _LONG_STEPS / max(1, len(records)))
        width = _SHORT * busy
        self.pauses: list[Pause] = []
        self._times = [begin]
        self._xs = [0.0]
        end = begin
        for record in records:
            if record.timestamp - end > limit > 0:
                start = self._add(end)
                self._times.append(record.timestamp)
                self._xs.append(start + width)
                self.pauses.append(Pause(start, start + width, record.timestamp - end))
            end = max(end, step_end(record))
        self._add(end)

    @property
    def length(self) -> float:
        """Where the last step ends on the axis."""
        return self._xs[-1]

    def at(self, time: float) -> float:
        """Return the place of a time on the axis."""
        times, xs = self._times, self._xs
        index = bisect_right(times, time) - 1
        if index < 0:
            return time - times[0]
        if index + 1 == len(times) or times[index + 1] == times[index]:
            return xs[index] + time - times[index]
        share = (time - times[index]) / (times[index + 1] - times[index])
        return xs[index] + share * (xs[index + 1] - xs[index])

    def _add(self, time: float) -> float:
        """Go on linearly to a time; return its place."""
        x = self._xs[-1] + time - self._times[-1]
        self._times.append(time)
        self._xs.append(x)
        return x
