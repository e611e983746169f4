"""What the magics do, as functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelserve_widgets.notebook_session import NotebookSession

if TYPE_CHECKING:
    from kernelserve_widgets.dashboard.dashboard import Dashboard
    from kernelserve_widgets.timeline.timeline import Timeline

__all__ = ["dashboard", "timeline"]


def dashboard() -> Dashboard:
    """Show the live dashboard of this notebook's engine here, and return it. The same as `%dashboard`."""
    from kernelserve_widgets.dashboard.dashboard import Dashboard

    session = NotebookSession.current()
    session.llm()
    shown = Dashboard(session)
    shown.show()
    return shown


def timeline() -> Timeline:
    """Return what the last steps of this notebook's engine did: see `Timeline`."""
    from kernelserve_widgets.timeline.timeline import Timeline

    return Timeline.of(NotebookSession.current().known_llm())
