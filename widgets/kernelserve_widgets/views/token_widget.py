"""The comm of a token explorer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import traitlets

from kernelserve_widgets.views.quiet_widget import QuietWidget

__all__ = ["TokenWidget"]


class TokenWidget(QuietWidget):
    """Gives static/tokens.js the tokens when a view asks, and the source of the cell that continues from one."""

    cell_id = traitlets.Unicode().tag(sync=True)
    can_continue = traitlets.Bool().tag(sync=True)

    def __init__(
        self,
        answers: Callable[[], list[list[Any]]],
        continuation: Callable[[int, int], str] | None,
        *,
        cell_id: str,
    ) -> None:
        self._answers = answers
        self._continuation = continuation
        super().__init__("tokens", cell_id=cell_id, can_continue=continuation is not None)

    def handle(self, message: dict[str, Any]) -> None:
        """Send the tokens, or a source."""
        match message:
            case {"kind": "sync"}:
                self.tell({"answers": self._answers()})
            case {"kind": "continue", "index": int(index), "token": int(token_id)}:
                self.tell(self._source(index, token_id))

    def _source(self, index: int, token_id: int) -> dict[str, str]:
        if self._continuation is None:
            return {"problem": "this answer cannot be continued"}
        try:
            return {"source": self._continuation(index, token_id)}
        except Exception as error:  # no cell runs that could show it
            return {"problem": str(error) or type(error).__name__}
