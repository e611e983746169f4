"""What ipywidgets leaves to its users: showing a widget without its fallback, closing it with all that it made."""

from __future__ import annotations

from typing import Any

__all__ = ["close_tree", "view_of"]


def view_of(widget: Any) -> dict[str, Any]:
    """Return the MIME data that show a widget, without a text beside it."""
    data: dict[str, Any] = widget._repr_mimebundle_()
    kind = "application/vnd.jupyter.widget-view+json"
    return {kind: data[kind]}


def close_tree(widget: Any) -> None:
    """Close a widget, its children, and the layouts and styles of all: each of them has a comm of its own."""
    for child in getattr(widget, "children", ()):
        close_tree(child)
    for name in ("style", "layout"):
        if (part := getattr(widget, name, None)) is not None:
            part.close()
    widget.close()
