"""The limits of the scheduler as input fields: a change applies to the running engine from its next step on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from html import escape
from typing import Any

import ipywidgets

import kernelserve as ks
from kernelserve.protocol import EngineReady
from kernelserve_widgets.drawing.widget_tree import close_tree, view_of
from kernelserve_widgets.views.cell_display import CellDisplay
from kernelserve_widgets.views.keeper import Keeper

__all__ = ["Controls"]

_NUMBERS = {
    "max_num_batched_tokens": ("Token budget", "tokens of all requests together in one step"),
    "max_num_seqs": ("Seats", "requests that run at the same time"),
    "long_prefill_token_threshold": (
        "Prompt chunk",
        "prompt tokens of one request in a step; 0: no limit",
    ),
}
_POLICIES = ("fcfs", "priority")


class Controls:
    """Fields that send when they are left or Enter is pressed, never in between.

    A change is applied in a thread: the engine answers only between two steps, and the callback of a widget must
    return at once. A refused value is put back, with the engine's reason beside it.
    """

    def __init__(self, find_llm: Callable[[], ks.LLM | None], place: CellDisplay) -> None:
        self._find_llm = find_llm
        self._place = place
        self._applying = threading.Lock()
        self._known: dict[str, Any] = {}
        """What the engine is known to use; a field that says something else was changed by a person."""
        self._engine_id = ""
        self._budget: int | None = None
        """Of the last step."""
        self._closed = False
        self.fields: dict[str, Any] = {}
        """Option of `LLM.configure` -> its widget."""
        place.run(self._make)

    @property
    def bundle(self) -> dict[str, Any]:
        """The view, with a text for readers without a kernel."""
        return view_of(self._box) | {"text/plain": self.as_text()}

    @property
    def message(self) -> str:
        """What the last change did, as HTML."""
        return str(self._message.value)

    def as_text(self) -> str:
        """Return the limits in a line."""
        return "Scheduler: " + ", ".join(f"{name}={value}" for name, value in self._known.items())

    def show_engine(self, ready: EngineReady, token_budget: int | None) -> None:
        """Show the limits that an engine has started with, and the budget of its last step if there was one.

        Code may have changed the budget; it is left alone while a change is on its way.
        """
        if ready.engine_id != self._engine_id:
            self._engine_id, self._budget = ready.engine_id, token_budget
            for name in self.fields:
                self._show(name, getattr(ready.config, name))
        if (
            token_budget is not None
            and token_budget != self._budget
            and not self._applying.locked()
        ):
            self._budget = token_budget
            self._show("max_num_batched_tokens", token_budget)

    def close(self) -> None:
        """Close all comms."""
        self._closed = True
        self._place.run(close_tree, self._box)
        self._place.run(self._keeper.discard)

    def _make(self) -> None:
        shared: dict[str, Any] = {"style": {"description_width": "initial"}}
        for name, (label, tooltip) in _NUMBERS.items():
            self.fields[name] = ipywidgets.IntText(
                description=label,
                tooltip=tooltip,
                continuous_update=False,
                layout={"width": "190px", "margin": "2px 12px 2px 0"},
                **shared,
            )
        self.fields["policy"] = ipywidgets.Dropdown(
            options=_POLICIES,
            description="Policy",
            tooltip="who is served first",
            layout={"width": "150px", "margin": "2px 0"},
            **shared,
        )
        self._message = ipywidgets.HTML(layout={"margin": "0"})
        row = ipywidgets.HBox(list(self.fields.values()), layout={"flex_flow": "row wrap"})
        self._box = ipywidgets.VBox([row, self._message], layout={"max_width": "900px"})
        self._keeper = Keeper(self._box)
        for name, field in self.fields.items():
            self._known[name] = field.value
            field.observe(partial(self._changed, name), names="value")

    def _show(self, name: str, value: Any) -> None:
        self._known[name] = value
        self._place.run(setattr, self.fields[name], "value", value)

    def _changed(self, name: str, change: dict[str, Any]) -> None:
        value = change["new"]
        if not self._closed and value != self._known[name]:
            threading.Thread(
                target=self._apply, args=(name, value), name="kernelserve-configure", daemon=True
            ).start()

    def _apply(self, name: str, value: Any) -> None:
        with self._applying:
            if value == self._known[name]:
                return
            try:
                llm = self._find_llm()
                if llm is None:
                    raise ks.EngineDeadError("no engine runs: nothing was changed")
                llm.configure(**{name: value})
            except ks.KernelserveError as error:
                self._say(_reason(error), is_error=True)
                self._show(name, self._known[name])
            else:
                self._known[name] = value
                self._say(f"{name} is {value} from the next step on", is_error=False)

    def _say(self, text: str, *, is_error: bool) -> None:
        colour = (
            "var(--jp-error-color1, #c8322b)" if is_error else "var(--jp-ui-font-color2, #697386)"
        )
        role = "alert" if is_error else "status"
        html = f'<span role="{role}" style="font-size:12px;color:{colour}">{escape(text)}</span>'
        self._place.run(setattr, self._message, "value", html)


def _reason(error: Exception) -> str:
    """Return the first line, without the name of an exception of the engine."""
    line = str(error).partition("\n")[0]
    kind, colon, rest = line.partition(": ")
    return rest if colon and kind.isidentifier() and kind.endswith("Error") else line
