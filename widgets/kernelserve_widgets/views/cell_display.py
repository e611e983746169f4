"""One output of one cell that can be replaced later, from any thread."""

from __future__ import annotations

import contextvars
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["CellDisplay", "MimeBundle"]

T = TypeVar("T")
MimeBundle = tuple[dict[str, Any], dict[str, Any]]
"""Data by MIME type, and its metadata."""


class CellDisplay:
    """Remembers the cell that made it, so that what is sent later belongs to that cell.

    ipykernel keeps the parent of a message in context variables: calls run in a copy of the context of `show`. A copy,
    since two threads cannot be in one context at the same time.
    """

    def __init__(self) -> None:
        self.display_id = f"kernelserve-{uuid.uuid4().hex}"
        self._context = contextvars.copy_context()
        self._shown = False

    def show(self, data: dict[str, Any], metadata: dict[str, Any] | None = None) -> None:
        """Show a MIME bundle in the cell that runs now."""
        self._context = contextvars.copy_context()
        self._publish(data, metadata, update=False)

    def replace(self, data: dict[str, Any], metadata: dict[str, Any] | None = None) -> None:
        """Show another MIME bundle in its place; the first one if none was shown yet."""
        self.run(self._publish, data, metadata, self._shown)

    def replace_from_here(
        self, data: dict[str, Any], metadata: dict[str, Any] | None = None
    ) -> None:
        """The same as a message of the cell that runs now: nbclient hears no other cell. For the last word only."""
        self._publish(data, metadata, self._shown)

    def run(self, call: Callable[..., T], *args: Any) -> T:
        """Call something whose messages are to belong to the cell."""
        return self._context.copy().run(call, *args)

    def _publish(self, data: dict[str, Any], metadata: dict[str, Any] | None, update: bool) -> None:
        from IPython.core.display_functions import publish_display_data

        self._shown = True
        publish_display_data(
            data,
            metadata or {},
            transient={"display_id": self.display_id},
            **({"update": True} if update else {}),
        )
