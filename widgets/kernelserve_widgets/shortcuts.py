"""What the magics do, as functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelserve_widgets.notebook_session import NotebookSession

if TYPE_CHECKING:
    from kernelserve_widgets.dashboard.dashboard import Dashboard
    from kernelserve_widgets.dropzone.drop_zone import DropZone
    from kernelserve_widgets.timeline.timeline import Timeline

__all__ = ["dashboard", "dropzone", "timeline"]


def dashboard() -> Dashboard:
    """Show the live dashboard of this notebook's engine here, and return it. The same as `%dashboard`."""
    from kernelserve_widgets.dashboard.dashboard import Dashboard

    session = NotebookSession.current()
    session.llm()
    shown = Dashboard(session)
    shown.show()
    return shown


def dropzone(name: str | None = None) -> DropZone:
    """Show here a place to drop, paste or choose pictures, and return it: `%%generate --image zone` takes them.

    The pictures are kept in `images/` beside the notebook, so after a restart the same call has them again. A zone with
    a name is the same one in every cell and notebook of the folder; without one it belongs to its cell.
    """
    zone = NotebookSession.current().zones.open(name)
    zone.show()
    return zone


def timeline() -> Timeline:
    """Return what the last steps of this notebook's engine did: see `Timeline`."""
    from kernelserve_widgets.timeline.timeline import Timeline

    return Timeline.of(NotebookSession.current().known_llm())
