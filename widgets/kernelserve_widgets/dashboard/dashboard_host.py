"""What a dashboard needs of the notebook that it is shown in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import kernelserve as ks
from kernelserve_widgets.flusher import Flusher

if TYPE_CHECKING:
    from kernelserve_widgets.dashboard.dashboard import Dashboard

__all__ = ["DashboardHost"]


class DashboardHost(Protocol):
    """A NotebookSession, or what tests put in its place."""

    flusher: Flusher
    dashboard: Dashboard | None
    """The one that is open."""

    def running_llm(self) -> ks.LLM | None:
        """Return the engine that runs now."""
