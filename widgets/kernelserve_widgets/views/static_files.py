"""The scripts and styles of the widgets, read when they are first shown."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

__all__ = ["NOTHING", "ended_script", "script", "style"]

NOTHING = "export default {}"
"""A script that shows nothing: what a closed widget leaves in a saved notebook."""


_SHARED = {
    "stream": ("token_view", "saved", "stored_widget"),
    "tokens": ("token_view", "saved"),
    "keeper": ("saved",),
    "dropzone": ("saved", "stored_widget", "picture_sources", "picture_upload"),
}


@cache
def script(name: str) -> str:
    """Return the ES module `static/<name>.js`. What it shares with others is put before it, so it imports nothing.

    Lines of comment are left out: the whole is sent for each widget.
    """
    lines = [line for part in (*_SHARED[name], name) for line in _read(f"{part}.js").split("\n")]
    return "\n".join(line for line in lines if not line.lstrip().startswith("//"))


@cache
def ended_script() -> str:
    """Return the small ES module of an answer that has ended; it asks the kernel for the text."""
    return _read("ended.js")


@cache
def style(name: str = "stream") -> str:
    """Return the style sheet `static/<name>.css`; `stream` is that of all views of answers."""
    return _read(f"{name}.css")


def _read(name: str) -> str:
    return (files("kernelserve_widgets") / "static" / name).read_text(encoding="utf-8")
