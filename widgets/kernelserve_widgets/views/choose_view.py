"""Chooses how an answer is shown where the cell runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelserve.outputs import CompletionOutput
from kernelserve_widgets.shell import Ui, choose_ui
from kernelserve_widgets.views.answer_view import AnswerView

__all__ = ["choose_view"]


def choose_view(
    shell: Any,
    wanted: str,
    *,
    num_answers: int,
    stop: Callable[[], None],
    stop_hint: str,
    show_tokens: bool,
    snapshot: Callable[[], list[CompletionOutput]],
) -> AnswerView:
    """Return a view for the front end behind `shell`; a missing widget package is no error."""
    return _view_class(choose_ui(shell, wanted))(
        num_answers=num_answers,
        stop=stop,
        stop_hint=stop_hint,
        show_tokens=show_tokens,
        snapshot=snapshot,
    )


def _view_class(ui: Ui) -> Callable[..., AnswerView]:
    if ui == "widget":
        from kernelserve_widgets.views.widget_view import WidgetView

        return WidgetView
    if ui == "display":
        from kernelserve_widgets.views.display_view import DisplayView

        return DisplayView
    if ui == "captured":
        from kernelserve_widgets.views.final_view import FinalView

        return FinalView
    from kernelserve_widgets.views.plain_view import PlainView

    return PlainView
