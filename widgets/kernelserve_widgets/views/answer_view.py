"""What shows an answer while it runs and once it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kernelserve.outputs import RequestOutput

if TYPE_CHECKING:
    from kernelserve_widgets.result import Result

__all__ = ["AnswerView"]


class AnswerView(Protocol):
    """One answer in one cell. Every call but `open` may come from another thread than the cell's, one at a time."""

    def open(self) -> None:
        """Show it in the cell that runs now."""

    def update(self, delta: RequestOutput, counters: str) -> None:
        """Add what is new: `delta.outputs` hold only that. `counters` is one line that says how it goes."""

    def heartbeat(self, counters: str) -> None:
        """Nothing is new but, perhaps, the counters."""

    def finish(self, result: Result) -> None:
        """Replace what was live by the static output that is saved with the notebook."""
