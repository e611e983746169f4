"""The live view of an answer in front ends that have widgets."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from kernelserve.outputs import CompletionOutput, RequestOutput
from kernelserve_widgets.views.cell_display import CellDisplay
from kernelserve_widgets.views.static_output import ending_note, static_bundle
from kernelserve_widgets.views.token_spans import TokenSpan, spans_of_delta, spans_of_text
from kernelserve_widgets.views.widget_shelf import WidgetShelf

if TYPE_CHECKING:
    from kernelserve_widgets.result import Result
    from kernelserve_widgets.views.answer_widget import AnswerWidget, Payload

__all__ = ["WidgetView", "finished_widgets"]

_NUM_KEPT_WIDGETS = 4
_COUNTERS_INTERVAL_S = 0.4
"""Counters change with every token; a reader needs them less often than the text."""


@cache
def finished_widgets() -> WidgetShelf:
    """Return where the widgets of ended answers are kept: one shelf, as comms belong to the whole kernel."""
    return WidgetShelf(_NUM_KEPT_WIDGETS)


class WidgetView:
    """Sends each piece of text once, with its number, to a widget in the cell; see AnswerWidget.

    Nothing waits for a front end: with none, or none that answers, the messages go nowhere and the static output of
    `finish` is what the notebook keeps.
    """

    def __init__(
        self,
        *,
        num_answers: int,
        stop: Callable[[], None],
        stop_hint: str,
        show_tokens: bool,
        snapshot: Callable[[], list[CompletionOutput]],
    ) -> None:
        self._num_answers = num_answers
        self._stop = stop
        self._stop_hint = stop_hint
        self._show_tokens = show_tokens
        self._snapshot = snapshot
        self._sent_chars = [0] * num_answers
        self._sent_tokens = [0] * num_answers
        self._counted_at = 0.0
        self._widget: AnswerWidget | None = None

    def open(self) -> None:
        """Show the widget in the cell that runs."""
        from kernelserve_widgets.views.answer_widget import AnswerWidget

        self._widget = AnswerWidget(
            self._stop,
            self._sent,
            answers=self._num_answers,
            stop_hint=self._stop_hint,
            show_tokens=self._show_tokens,
        )
        self._widget.show("generating…")

    def update(self, delta: RequestOutput, counters: str) -> None:
        """Send what is new."""
        if (widget := self._widget) is None:
            return
        with widget.lock:  # numbers and lengths must belong together when another thread asks
            pieces: list[tuple[int, Payload]] = []
            for output in delta.outputs:
                if piece := self._piece(output):
                    pieces.append((output.index, piece))
                self._sent_chars[output.index] += len(output.text)
                self._sent_tokens[output.index] += len(output.logprobs or ())
            now = time.monotonic()
            is_due = now - self._counted_at >= _COUNTERS_INTERVAL_S
            if is_due:
                self._counted_at = now
            if pieces:
                widget.add(pieces, counters if is_due else None)
            elif is_due:
                widget.count(counters)

    def heartbeat(self, counters: str) -> None:
        """Send the counters if they changed."""
        if (widget := self._widget) is not None and widget.counters != counters:
            self._counted_at = time.monotonic()
            widget.count(counters)

    def finish(self, result: Result) -> None:
        """Replace the widget by the static output; it stays open for a while for pages that missed that."""
        data, metadata = static_bundle(result, show_tokens=self._show_tokens)
        if (widget := self._widget) is None:
            CellDisplay().show(data, metadata)
            return
        whole = [self._whole(output) for output in result.outputs]
        summary = result.summary()
        if result.error is not None:
            summary = f"{summary} {ending_note(result)}"
        with widget.lock:
            all_sent = self._sent() == whole
            widget.end(summary, None if all_sent else whole)
        widget.place.replace(data, metadata)
        widget.keep(whole)
        finished_widgets().put(widget.discard)
        self._widget = None

    def _piece(self, output: CompletionOutput) -> Payload:
        if self._show_tokens and output.logprobs:
            return [_token(span) for span in spans_of_delta(output)]
        return "" if self._show_tokens and self._sent_tokens[output.index] else output.text

    def _sent(self) -> list[Payload]:
        """What was sent of each answer. The result may know more already: that comes with a number of its own."""
        sent = []
        for output in self._snapshot():
            chars, tokens = self._sent_chars[output.index], self._sent_tokens[output.index]
            logprobs = (output.logprobs or [])[:tokens]
            sent.append(self._piece(replace(output, text=output.text[:chars], logprobs=logprobs)))
        return sent

    def _whole(self, output: CompletionOutput) -> Payload:
        if self._show_tokens and output.logprobs:
            return [_token(span) for span in spans_of_text(output)]
        return output.text


def _token(span: TokenSpan) -> list[Any]:
    others = [[other.text, round(other.probability, 4)] for other in span.alternatives]
    return [span.text, round(span.probability, 4), others]
