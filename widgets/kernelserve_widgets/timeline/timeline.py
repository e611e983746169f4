"""Timeline: what the last steps did, as a picture, in words, as a table and as a trace."""

from __future__ import annotations

import base64
import importlib
import importlib.util
import os
import sys
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kernelserve as ks
from kernelserve.errors import InvalidConfigError
from kernelserve.protocol import StepRecord
from kernelserve_widgets.history import StepHistory, describe_step, step_end
from kernelserve_widgets.shell import choose_ui, current_shell
from kernelserve_widgets.timeline.perfetto import trace_events, write_trace
from kernelserve_widgets.timeline.step_row import StepRow, table_text
from kernelserve_widgets.timeline.step_table import StepTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kernelserve_widgets.timeline.timeline_figure import TimelineFigure
    from kernelserve_widgets.timeline.timeline_view import TimelineView

__all__ = ["Timeline"]

_EMPTY = "Nothing has run yet: generate something, then look at the timeline again."


class Timeline:
    """The steps that an engine has made lately, as they were when this was made.

        ks.timeline().show()                        # picture and a slider over the steps
        ks.timeline().describe(412)                 # a step in words
        ks.timeline().to_perfetto("trace.json")     # for ui.perfetto.dev

    Step numbers that are not there give the nearest step; None is the last one.
    """

    def __init__(self, records: Iterable[StepRecord] = ()) -> None:
        records = list(records)
        # Every request that the records name stays known.
        num_requests = sum(len(r.queued) + len(r.num_scheduled_tokens) for r in records)
        self.history = StepHistory(max_records=max(1, len(records)), max_ended=num_requests + 1)
        self._table = StepTable(self.history)
        for record in records:
            self.history.add([record])
            if self.history.records[-1] is record:  # not one that was there before
                self._table.add(record)
        self._view: TimelineView | None = None

    @classmethod
    def of(cls, llm: ks.LLM) -> Timeline:
        """Take the steps that the engine of `llm` remembers; of one that has died, those that this process has seen."""
        try:
            records, stats = llm.step_records(), llm.stats()
        except ks.EngineDeadError:
            records, stats = llm.recent_step_records(), llm.latest_stats
        timeline = cls(records)
        timeline.history.settle(stats)
        return timeline

    @property
    def steps(self) -> list[int]:
        """The numbers of the steps, in order."""
        return [record.step for record in self.history.records]

    def record(self, step: int | None = None) -> StepRecord:
        """Return the record of a step. Raises InvalidConfigError if there are no steps at all."""
        records = self.history.records
        if not records:
            raise InvalidConfigError(f"step={step}: {_EMPTY[0].lower()}{_EMPTY[1:]}")
        if step is None:
            return records[-1]
        index = bisect_left(records, step, key=lambda record: record.step)
        near = [records[i] for i in (index - 1, index) if 0 <= i < len(records)]
        return min(near, key=lambda record: abs(record.step - step))

    def rows(self, step: int | None = None) -> list[StepRow]:
        """Return what a step did with each request that it names."""
        return self._table.rows(self.record(step))

    def describe(self, step: int | None = None) -> str:
        """Return the plan of a step in words; one line."""
        return describe_step(self.record(step), self.history)

    def plot(self, step: int | None = None, *, num_steps: int | None = None) -> Figure:
        """Return a new matplotlib Figure with a marker at `step`.

        `num_steps`: how many steps around it to draw; None: all. Raises InvalidConfigError without matplotlib or steps.
        """
        return self.draw(step, num_steps, caption=True).figure

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one dict for each step and each request that it names: got tokens, was refused or was preempted.

        Times are seconds; `time` counts from the first step.
        """
        return list(self._table.dicts())

    def to_frame(self) -> Any:
        """Return `to_rows` as a pandas DataFrame. Raises InvalidConfigError if pandas is not installed."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            message = "to_frame() needs pandas: pip install pandas, or use to_rows()"
            raise InvalidConfigError(message) from error
        return pandas.DataFrame(self.to_rows())

    def to_perfetto(self, path: str | os.PathLike[str]) -> Path:
        """Write a trace for ui.perfetto.dev or chrome://tracing, whole or not at all; return where it is."""
        return write_trace(path, trace_events(self.history))

    def show(self) -> None:
        """Show it here: the picture with a slider over the steps, or what the front end can show of that.

        What was shown before keeps its picture and loses its slider.
        """
        self.close()
        shell = current_shell()
        ui = choose_ui(shell)
        if ui == "plain":
            sys.stdout.write(self.text() + "\n")
        elif ui == "widget" and self.history.records and _has_matplotlib():
            from kernelserve_widgets.notebook_session import NotebookSession
            from kernelserve_widgets.timeline.timeline_view import TimelineView

            self._view = TimelineView(self, NotebookSession.of(shell).flusher)
            self._view.show()
        else:
            from kernelserve_widgets.views.cell_display import CellDisplay

            CellDisplay().show(*self.static_bundle())

    def close(self) -> None:
        """Take the slider away; the picture and the words of the step stay."""
        view, self._view = self._view, None
        if view is not None:
            view.close()

    def __repr__(self) -> str:
        records = self.history.records
        if not records:
            return "Timeline(no steps)"
        first, last = records[0], records[-1]
        return (
            f"Timeline({len(records):,} steps {first.step}-{last.step}, "
            f"{len(self.history.requests):,} requests, {step_end(last) - first.timestamp:.3f} s)"
        )

    def static_bundle(self, step: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return (data, metadata) of what can be read without a kernel: text, and a picture if there is matplotlib."""
        data: dict[str, Any] = {"text/plain": self.text(step)}
        if self.history.records and _has_matplotlib():
            png = self.draw(step, None, caption=True).png()
            data["image/png"] = base64.b64encode(png).decode()
        return data, {}

    def text(self, step: int | None = None) -> str:
        """Return the step in words and as a table of text."""
        if not self.history.records:
            return _EMPTY
        return f"{self!r}\n{self.describe(step)}\n{table_text(self.rows(step))}"

    def _repr_mimebundle_(
        self,
        include: Any = None,  # noqa: ARG002 - part of the protocol
        exclude: Any = None,  # noqa: ARG002
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.static_bundle()

    def draw(self, step: int | None, num_steps: int | None, *, caption: bool) -> TimelineFigure:
        """Return the picture around a step, which can move its marker. Raises like `plot`."""
        if not _has_matplotlib():
            raise InvalidConfigError("a picture needs matplotlib: pip install matplotlib")
        from kernelserve_widgets.timeline.timeline_figure import TimelineFigure

        around = self.record(step).step
        describe = self.describe if caption else None
        return TimelineFigure(self.history, around=around, num_steps=num_steps, describe=describe)


def _has_matplotlib() -> bool:
    return importlib.util.find_spec("matplotlib") is not None
