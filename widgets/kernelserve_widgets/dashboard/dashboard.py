"""The live dashboard of a notebook's engine."""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernelserve_widgets.dashboard.dashboard_host import DashboardHost
from kernelserve_widgets.dashboard.engine_watch import EngineWatch
from kernelserve_widgets.dashboard.panel_text import as_text
from kernelserve_widgets.drawing.theme import theme_of
from kernelserve_widgets.shell import cell_id, choose_ui, current_shell
from kernelserve_widgets.views.cell_display import CellDisplay, MimeBundle

if TYPE_CHECKING:
    from kernelserve_widgets.dashboard.controls import Controls
    from kernelserve_widgets.dashboard.live_view import LiveView
    from kernelserve_widgets.dashboard.painter import Painter, Scene

__all__ = ["Dashboard"]

_MIN_INTERVAL_S = {"widget": 0.25, "display": 1.0}
_COST_FACTOR = 120.0
"""Drawing may take one second of processor time in so many: an engine that uses all cores waits for it."""
_NEWEST = 0.25
"""Weight of the newest frame in the average of what they cost."""
_REST_S = 2.0


class Dashboard:
    """Shows what the engine does while it does it, and a still picture of it at all other times.

        at rest         an image/png output: it is what a saved notebook keeps, and needs no kernel
        something runs  widgets in the same output, two messages for each frame
        closed          the last picture, for good

    Nothing is asked, drawn or sent while nothing changes. Only one dashboard of a notebook is open: showing another one
    closes it. `theme` is light or dark. Without ipywidgets the picture itself is replaced, at most once a second;
    without matplotlib it is text.
    """

    def __init__(
        self, host: DashboardHost, *, theme: str = "light", controls: bool = True, ui: str = "auto"
    ) -> None:
        self.min_interval_s = _MIN_INTERVAL_S["widget"]
        self.num_frames = 0
        """Frames drawn so far."""
        self._frame_cost = 0.0
        """Seconds of processor time that a frame takes, on average."""
        self._host = host
        self._theme = theme
        theme_of(theme)
        self._wants_controls = controls
        self._shell = current_shell()
        self._ui = choose_ui(self._shell, ui)
        self._lock = threading.RLock()
        self._watch = EngineWatch(host.running_llm)
        self._painter: Painter | None = None if self._ui == "plain" else _make_painter(theme)
        self._place = CellDisplay()
        self._controls: Controls | None = None
        self._controls_place = CellDisplay()
        self._live: LiveView | None = None
        self._last_still: MimeBundle = ({}, {})
        self._last_change = 0.0
        self._is_still_current = False
        self._has_news = False
        """Whether something has changed since the last picture that every front end has heard of."""
        self._closed = False

    def show(self) -> None:
        """Show it in the cell that runs now. Raises nothing for a missing package."""
        self.close_current(self._host)
        with self._lock:
            self._watch.look()
            if self._ui == "plain":
                sys.stdout.write(self.text() + "\n")
                return
            self._show_controls()
            self._last_still = self._still()
            self._place.show(*self._last_still)
            if self._ui == "captured":
                return
            self._host.dashboard = self
            self._closed = False
            self._shell.events.register("post_run_cell", self._save)
        self._host.flusher.add(self)

    def close(self) -> None:
        """Leave the last picture and close everything else."""
        self._host.flusher.remove(self)
        with self._lock:
            if self._closed or self._host.dashboard is not self:
                return
            self._closed = True
            self._host.dashboard = None
            self._shell.events.unregister("post_run_cell", self._save)
            self._watch.look()
            self._replace_by_still(self._place.replace_from_here)
            if self._controls is not None:
                self._controls_place.replace_from_here({"text/plain": self._controls.as_text()})
                self._controls.close()
                self._controls = None

    @classmethod
    def close_current(cls, host: DashboardHost) -> None:
        """Close the dashboard that is open in a notebook, if there is one."""
        if host.dashboard is not None:
            host.dashboard.close()

    def snapshot(self, *, scale: int = 2) -> bytes:
        """Return all of it as PNG, 900 * scale pixels wide. Needs matplotlib."""
        from kernelserve_widgets.dashboard.painter import Painter

        with self._lock:
            self._watch.look()
            return Painter(self._theme, scale=scale).still(self._scene())

    def text(self) -> str:
        """Return all of it as plain text."""
        with self._lock:
            self._watch.look()
            return as_text(self._watch.numbers(), self._watch.title)

    def flush(self) -> bool:
        """Show what has changed since the last call; False once it is closed."""
        with self._lock:
            if self._closed:
                return False
            began = time.thread_time()
            if self._look():
                self._update_controls()
                if self._draw():
                    self._pace(time.thread_time() - began)
            elif not self._is_still_current and self._is_at_rest():
                self._replace_by_still()
            return True

    @property
    def _mode(self) -> str:
        return "widget" if self._ui == "widget" and self._painter is not None else "display"

    def _pace(self, seconds: float) -> None:
        """Let frames be as far apart as they cost on average; one that was expensive by chance counts little."""
        if self._frame_cost:
            seconds = (1 - _NEWEST) * self._frame_cost + _NEWEST * seconds
        self._frame_cost = seconds
        self.min_interval_s = max(_MIN_INTERVAL_S[self._mode], _COST_FACTOR * seconds)

    def _look(self) -> bool:
        changed = self._watch.look()
        if changed:
            self._last_change = time.monotonic()
            self._is_still_current, self._has_news = False, True
        return changed

    def _save(self, _: Any = None) -> None:
        """Leave the picture when a cell and all work end, if the front end hears nothing between cells (nbclient)."""
        if cell_id(self._shell) is not None:
            return
        with self._lock:
            self._look()
            if self._has_news and self._watch.is_idle and not self._closed:
                self._has_news = False
                self._replace_by_still(self._place.replace_from_here)

    def _is_at_rest(self) -> bool:
        return self._watch.is_at_rest and time.monotonic() - self._last_change > _REST_S

    def _draw(self) -> bool:
        """Show the numbers as they are now. Returns whether this frame cost as much as most do."""
        self.num_frames += 1
        is_over = self._live is None and self._watch.is_idle
        if self._mode != "widget" or self._painter is None or is_over:
            self._replace_by_still()
            return self._mode != "widget"
        num_scales = self._painter.figure.num_scales
        html, png = self._painter.frame(self._scene())
        if self._live is None:
            self._begin_live(self._painter, html, png)
            return False
        self._live.update(html, png)
        return num_scales == self._painter.figure.num_scales

    def _begin_live(self, painter: Painter, html: str, png: bytes) -> None:
        """Put widgets in the place of the picture."""
        from kernelserve_widgets.dashboard.live_view import LiveView

        width, height = painter.width, painter.picture_height
        self._live = LiveView(self._place, width=width, picture_height=height)
        self._live.update(html, png)
        still, size = self._last_still  # for readers of a notebook that is saved now
        self._place.replace(still | self._live.bundle, size)

    def _replace_by_still(self, replace: Callable[..., None] | None = None) -> None:
        """Put a picture in the place of the widgets, and close them."""
        self._last_still = self._still()
        (replace or self._place.replace)(*self._last_still)
        self._is_still_current = True
        if self._live is not None:
            self._live.close()
            self._live = None

    def _still(self) -> MimeBundle:
        if self._painter is not None:
            return self._painter.still_bundle(self._scene())
        return {"text/plain": as_text(self._watch.numbers(), self._watch.title)}, {}

    def _scene(self) -> Scene:
        from kernelserve_widgets.dashboard.painter import Scene

        watch = self._watch
        return Scene(watch.title, watch.numbers(), watch.names, watch.block_map)

    def _show_controls(self) -> None:
        if self._ui != "widget" or not self._wants_controls:
            return
        from kernelserve_widgets.dashboard.controls import Controls

        self._controls = Controls(self._host.running_llm, self._controls_place)
        self._update_controls()
        self._controls_place.show(self._controls.bundle)

    def _update_controls(self) -> None:
        if self._controls is None or self._watch.ready is None:
            return
        self._controls.show_engine(self._watch.ready, self._watch.last_budget)


def _make_painter(theme: str) -> Any:
    """Return a Painter, None if matplotlib is not there."""
    if importlib.util.find_spec("matplotlib") is None:
        return None
    from kernelserve_widgets.dashboard.painter import Painter

    return Painter(theme)
