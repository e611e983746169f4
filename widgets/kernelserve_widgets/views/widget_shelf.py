"""Keeps the last widgets open and closes the others, so that their number does not grow."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

__all__ = ["WidgetShelf"]


class WidgetShelf:
    """A finished widget is kept for a page that was reloaded while it ran and so never gets its static output."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()

    def put(self, close: Callable[[], None]) -> None:
        """Keep a widget; `close` is called when newer ones have taken its place."""
        with self._lock:
            self._kept.append(close)
            late = [self._kept.popleft() for _ in range(len(self._kept) - self._size)]
        for close_one in late:
            close_one()

    def clear(self) -> None:
        """Close all."""
        with self._lock:
            late = list(self._kept)
            self._kept.clear()
        for close_one in late:
            close_one()
