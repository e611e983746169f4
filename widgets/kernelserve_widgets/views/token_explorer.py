"""A finished answer whose tokens show what else could have come, and from which another one can be continued."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from kernelserve.errors import InvalidRequestError
from kernelserve.outputs import CompletionOutput
from kernelserve_widgets.shell import cell_id, choose_ui, current_shell
from kernelserve_widgets.views.cell_display import MimeBundle
from kernelserve_widgets.views.static_output import static_bundle
from kernelserve_widgets.views.token_spans import spans_of_text
from kernelserve_widgets.views.widget_shelf import WidgetShelf

if TYPE_CHECKING:
    from kernelserve_widgets.result import Result
    from kernelserve_widgets.views.token_widget import TokenWidget

__all__ = ["TokenExplorer", "open_explorers"]

_NUM_OPEN_EXPLORERS = 4


@cache
def open_explorers() -> WidgetShelf:
    """Return where live explorers are kept; older ones become static."""
    return WidgetShelf(_NUM_OPEN_EXPLORERS)


class TokenExplorer:
    """Shows a result live in the cell where it is displayed; without widgets, its static token view.

    `continuation(num_tokens, token_id)` returns the source of a cell that continues the first answer after its first
    `num_tokens` tokens with another token; without it tokens can only be looked at.
    """

    def __init__(
        self, result: Result, continuation: Callable[[int, int], str] | None = None
    ) -> None:
        if not any(output.logprobs for output in result.outputs):
            raise InvalidRequestError(
                f"{result.request_id} has no log-probabilities: run it again with --tokens, or with --logprobs 5"
            )
        self._result = result
        self._continuation = continuation
        self._widget: TokenWidget | None = None

    def show(self) -> None:
        """Show it in the cell that runs."""
        if choose_ui(current_shell()) != "widget":
            from IPython.core.display_functions import publish_display_data

            publish_display_data(*self.static())
            return
        from kernelserve_widgets.views.token_widget import TokenWidget

        self.close()
        self._widget = TokenWidget(
            self._answers, self._continuation, cell_id=cell_id(current_shell()) or ""
        )
        self._widget.show(self._result.text)
        open_explorers().put(self.close)

    def close(self) -> None:
        """Leave the static token view in its place."""
        if self._widget is not None:
            self._widget.place.replace(*self.static())
            self._widget.discard()
            self._widget = None

    def static(self) -> MimeBundle:
        """Return what can be saved: HTML with a tooltip for each token."""
        return static_bundle(self._result, show_tokens=True)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> MimeBundle:  # noqa: ARG002
        return self.static()

    def _ipython_display_(self) -> None:
        self.show()

    def _answers(self) -> list[list[Any]]:
        return [_tokens(output) for output in self._result.outputs]


def _tokens(output: CompletionOutput) -> list[Any]:
    """Each token as [text, probability, [[text, probability, id], ...], id, index]; text without one as it is.

    Only the first answer can be continued, so in the others the ids are -1.
    """
    rows: list[Any] = []
    for span in spans_of_text(output):
        if span.index < 0:
            rows.append(span.text)
            continue
        others = [
            [other.text, round(other.probability, 4), -1 if output.index else other.token_id]
            for other in span.alternatives
        ]
        own = -1 if output.index else span.token_id
        rows.append([span.text, round(span.probability, 4), others, own, span.index])
    return rows
