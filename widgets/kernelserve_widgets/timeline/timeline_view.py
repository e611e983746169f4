"""The timeline in a cell: the picture in one output, the slider with the words and the table in the next."""

from __future__ import annotations

import base64
import threading
import time
from html import escape
from typing import TYPE_CHECKING, Any

import ipywidgets

from kernelserve_widgets.drawing.widget_tree import close_tree, view_of
from kernelserve_widgets.flusher import Flusher
from kernelserve_widgets.timeline.step_row import table_html
from kernelserve_widgets.views.cell_display import CellDisplay
from kernelserve_widgets.views.keeper import Keeper

if TYPE_CHECKING:
    from kernelserve_widgets.timeline.timeline import Timeline

__all__ = ["TimelineView"]

_MIN_INTERVAL_S = 0.1
_SHARE_OF_CORE = 0.25
_ALL = 0
_ZOOMS = {"all steps": _ALL, "1,000 steps": 1000, "200 steps": 200, "50 steps": 50}
"""Label -> steps in the picture; None would be shown as no choice at all."""


class TimelineView:
    """Follows the slider without ever falling behind: a callback only notes where it is, the flusher draws the last.

    The picture is an output of its own, not a part of the widget, so that a saved notebook shows it without a kernel;
    closing replaces the widget by the words and the table.
    """

    def __init__(self, timeline: Timeline, flusher: Flusher) -> None:
        self.min_interval_s = _MIN_INTERVAL_S
        self._timeline = timeline
        self._flusher = flusher
        self._lock = threading.Lock()
        self._wanted: tuple[int, int] | None = None
        self._is_closed = False
        self._picture = CellDisplay()
        self._controls = CellDisplay()
        self.step = timeline.steps[-1]
        """The step that is shown."""
        self._num_steps = _ALL
        self._figure = timeline.draw(self.step, None, caption=False)
        self._make_widgets()

    def show(self) -> None:
        """Show it in the cell that runs."""
        self._picture.show(self._picture_data())
        data = {**view_of(self.widget), "text/plain": self._timeline.text(self.step)}
        self._controls.show(data)

    def flush(self) -> bool:
        """Draw what the slider and the zoom want now. Called by the flusher."""
        with self._lock:
            wanted, self._wanted = self._wanted, None
            if wanted is None or self._is_closed:
                # Taken out here, under the lock: what is noted from now on adds it again.
                self._flusher.remove(self)
                return True
        start = time.perf_counter()
        self._draw(*wanted)
        seconds = time.perf_counter() - start
        self.min_interval_s = max(_MIN_INTERVAL_S, seconds / _SHARE_OF_CORE)
        return True

    def close(self) -> None:
        """Replace the slider by text, and the picture by one with the words in it."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._flusher.remove(self)
        self._flusher.flush_now(self)  # waits for a drawing that is under way
        self._controls.run(setattr, self.words, "value", "")  # nbclient saves the last state it saw
        self._controls.run(close_tree, self.widget)
        self._controls.run(self._keeper.discard)
        data, _ = self._timeline.static_bundle(self.step)
        self._picture.replace(data)
        self._controls.replace({"text/plain": self._timeline.text(self.step)})

    def _make_widgets(self) -> None:
        steps = self._timeline.steps
        width = ipywidgets.Layout(width="440px")
        self.slider = ipywidgets.IntSlider(
            value=self.step, min=steps[0], max=steps[-1], description="step", layout=width
        )
        self.zoom = ipywidgets.Dropdown(
            options=list(_ZOOMS.items()), layout=ipywidgets.Layout(width="110px")
        )
        self.buttons = {
            name: ipywidgets.Button(
                icon=icon, tooltip=f"{name} step", layout=ipywidgets.Layout(width="38px")
            )
            for name, icon in (
                ("first", "step-backward"),
                ("previous", "chevron-left"),
                ("next", "chevron-right"),
                ("last", "step-forward"),
            )
        }
        for name, button in self.buttons.items():
            button.on_click(lambda _, name=name: self._go(name))
        self.slider.observe(self._note, "value")
        self.zoom.observe(self._note, "value")
        self.words = ipywidgets.HTML(self._words())
        row = ipywidgets.HBox([*self.buttons.values(), self.slider, self.zoom])
        self.widget = ipywidgets.VBox([row, self.words])
        self._keeper = Keeper(self.widget)

    def _go(self, name: str) -> None:
        steps = self._timeline.steps
        index = steps.index(self._timeline.record(self.slider.value).step)
        targets = {"first": 0, "previous": index - 1, "next": index + 1, "last": len(steps) - 1}
        self.slider.value = steps[min(max(0, targets[name]), len(steps) - 1)]

    def _note(self, _: Any) -> None:
        """Note what is wanted; the drawing is done outside of the callback."""
        with self._lock:
            if not self._is_closed:
                self._wanted = (self.slider.value, self.zoom.value)
                self._flusher.add(self)

    def _draw(self, step: int, num_steps: int) -> None:
        self.step = self._timeline.record(step).step
        if num_steps != self._num_steps or not self._figure.has(self.step):
            self._num_steps = num_steps
            self._figure = self._timeline.draw(self.step, num_steps or None, caption=False)
        self._figure.move(self.step)
        self._picture.replace(self._picture_data())
        self._controls.run(setattr, self.words, "value", self._words())

    def _picture_data(self) -> dict[str, Any]:
        png = base64.b64encode(self._figure.png()).decode()
        return {"image/png": png, "text/plain": self._timeline.text(self.step)}

    def _words(self) -> str:
        rows = table_html(self._timeline.rows(self.step))
        return f"<p>{escape(self._timeline.describe(self.step))}</p>{rows}"
