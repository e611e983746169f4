"""The live view of an answer in notebooks without widgets: text that is replaced a few times a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kernelserve.outputs import CompletionOutput, RequestOutput
from kernelserve_widgets.views.cell_display import CellDisplay
from kernelserve_widgets.views.static_output import static_bundle

if TYPE_CHECKING:
    from kernelserve_widgets.result import Result

__all__ = ["DisplayView"]

_MIN_INTERVAL_S = 0.25
_MAX_LIVE_CHARS = 4000


class DisplayView:
    """Shows the end of a long text while it grows, since each refresh sends all that is shown."""

    def __init__(
        self,
        *,
        num_answers: int,
        stop: Callable[[], None],  # noqa: ARG002 - there is nothing to click: the cell's interrupt stops it
        stop_hint: str,
        show_tokens: bool,
        snapshot: Callable[[], list[CompletionOutput]],  # noqa: ARG002 - no page asks for anything
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._texts = [""] * num_answers
        self._cut = [False] * num_answers
        self._hint = stop_hint
        self._show_tokens = show_tokens
        self._clock = clock
        self._place = CellDisplay()
        self._shown = ""
        self._shown_at = float("-inf")

    def open(self) -> None:
        """Show that something is coming."""
        self._shown = self._page("…")
        self._shown_at = self._clock()
        self._place.show({"text/plain": self._shown})

    def update(self, delta: RequestOutput, counters: str) -> None:
        """Add what is new; it is shown with the next refresh."""
        limit = _MAX_LIVE_CHARS // len(self._texts)
        for output in delta.outputs:
            text = self._texts[output.index] + output.text
            self._cut[output.index] |= len(text) > limit
            self._texts[output.index] = text[-limit:]
        self.heartbeat(counters)

    def heartbeat(self, counters: str) -> None:
        """Refresh if it is time and something changed."""
        page = self._page(counters)
        if page != self._shown and self._clock() - self._shown_at >= _MIN_INTERVAL_S:
            self._shown, self._shown_at = page, self._clock()
            self._place.replace({"text/plain": page})

    def finish(self, result: Result) -> None:
        """Replace it by the static output."""
        self._place.replace(*static_bundle(result, show_tokens=self._show_tokens))

    def _page(self, counters: str) -> str:
        texts = [
            f"[… the last {len(text):,} characters]\n{text}" if cut else text
            for text, cut in zip(self._texts, self._cut, strict=True)
        ]
        if len(texts) > 1:
            texts = [f"[{index}]\n{text}" for index, text in enumerate(texts)]
        status = f"[{counters} · {self._hint}]" if self._hint else f"[{counters}]"
        return "\n\n".join([*texts, status]).lstrip("\n")
