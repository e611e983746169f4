"""The view of an answer whose cell is being captured: nothing while it runs, the static output at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelserve.outputs import RequestOutput

if TYPE_CHECKING:
    from kernelserve_widgets.result import Result

__all__ = ["FinalView"]


class FinalView:
    """Under %%capture nobody sees what changes, and a live widget in the captured outputs would be dead later."""

    def __init__(self, **_: Any) -> None:
        pass

    def open(self) -> None:
        """Nothing is shown yet."""

    def update(self, delta: RequestOutput, counters: str) -> None:
        """Nothing is shown yet."""

    def heartbeat(self, counters: str) -> None:
        """Nothing is shown yet."""

    def finish(self, result: Result) -> None:
        """Show the answer."""
        from IPython.display import display

        from kernelserve_widgets.views.static_output import static_bundle

        data, metadata = static_bundle(result, show_tokens=result.show_tokens)
        display(data, raw=True, metadata=metadata)
