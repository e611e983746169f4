"""What can be known of the IPython shell and of the front end behind it."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any, Literal

__all__ = ["Ui", "can_await", "cell_id", "choose_ui", "current_shell", "execution_count"]

Ui = Literal["widget", "display", "plain", "captured"]
_KERNEL_THAT_SERVES_COMMS_WHILE_AWAITING = (7, 4)


def current_shell() -> Any:
    """Return the running InteractiveShell, None in a plain Python."""
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    return get_ipython()


def execution_count() -> int | None:
    """Return the number of the cell that runs, None outside IPython."""
    shell = current_shell()
    return None if shell is None else shell.execution_count


def cell_id(shell: Any) -> str | None:
    """Return the front end's id of the cell that runs, None if it sends none (terminals, nbclient)."""
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return None
    metadata = (kernel.get_parent() or {}).get("metadata") or {}
    found = metadata.get("cellId")
    return str(found) if found else None


def choose_ui(shell: Any, wanted: str = "auto") -> Ui:
    """Return how to show what changes: a widget, a display that is replaced, plain prints, or only the end.

    `captured`: the outputs of the cell are being collected (%%capture), so nobody sees what changes.
    """
    if shell is None or getattr(shell, "kernel", None) is None:
        return "plain"
    from IPython.core.displaypub import CapturingDisplayPublisher

    if isinstance(shell.display_pub, CapturingDisplayPublisher):
        return "captured"
    if wanted != "auto":
        return wanted  # type: ignore[return-value]
    has_widgets = all(importlib.util.find_spec(name) for name in ("ipywidgets", "anywidget"))
    return "widget" if has_widgets else "display"


def can_await(shell: Any) -> bool:
    """Whether a cell of this shell may be turned into an awaiting one.

    In a terminal it may not: there Ctrl-C leaves the task behind instead of cancelling it.
    """
    return (
        getattr(shell, "kernel", None) is not None
        and bool(getattr(shell, "autoawait", False))
        and getattr(shell, "loop_runner_map", {}).get("asyncio", (None,))[0] is shell.loop_runner
    )


def buttons_work_while_awaiting() -> bool:
    """Whether a click reaches the kernel while an awaiting cell runs."""
    ipykernel = sys.modules.get("ipykernel")
    version: tuple[Any, ...] = getattr(ipykernel, "version_info", (0, 0))
    return tuple(version[:2]) >= _KERNEL_THAT_SERVES_COMMS_WHILE_AWAITING
