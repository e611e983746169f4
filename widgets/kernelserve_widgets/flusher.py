"""The one thread of a kernel that refreshes what is shown: streams, dashboards, counters."""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

__all__ = ["Flushable", "Flusher"]

_LOGGER = logging.getLogger(__name__)
_MAX_FLUSHES_PER_S = 32.0
"""Of all views together: a front end stays smooth and a server's limits stay far away."""
_MAX_ERRORS = 3


class Flushable(Protocol):
    """Something that shows what changes."""

    min_interval_s: float
    """It is not flushed more often than this."""

    def flush(self) -> bool:
        """Show what is new, in the flusher's thread. False: do not call again."""


class Flusher:
    """Flushes every view at its own pace, and all of them together at most 32 times a second.

        one view     a . . a . . a . . a        every min_interval_s
        many views   a b c d e f g h a b        every view gets rarer, none is left out

    The thread lives only while there are views, so a kernel at rest does nothing. A view that keeps failing is
    dropped with a message in the log; the others go on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._changed = threading.Event()
        self._due: dict[Flushable, float] = {}
        self._errors: dict[Flushable, int] = {}
        self._thread: threading.Thread | None = None

    @property
    def num_views(self) -> int:
        """Views that are refreshed now."""
        return len(self._due)

    def add(self, view: Flushable) -> None:
        """Begin to refresh a view, the first time at once."""
        with self._lock:
            self._due[view] = 0.0
            self._errors[view] = 0
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="kernelserve-flusher", daemon=True
                )
                self._thread.start()
        self._changed.set()

    def remove(self, view: Flushable) -> None:
        """Stop refreshing a view. It may be in a flush right now; `flush_now` waits for that."""
        with self._lock:
            self._due.pop(view, None)
            self._errors.pop(view, None)
        self._changed.set()

    def flush_now(self, view: Flushable) -> None:
        """Flush a view in the calling thread, after any flush that is under way. Raises what it raises."""
        with self._flushing:
            view.flush()

    def close(self) -> None:
        """Forget all views; the thread ends."""
        with self._lock:
            self._due.clear()
            self._errors.clear()
            thread = self._thread
        self._changed.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)

    def _run(self) -> None:
        while (wait_s := self._next_wait()) is not None:
            if self._changed.wait(wait_s):
                self._changed.clear()
            for view in self._take_due(time.monotonic()):
                self._flush(view)

    def _next_wait(self) -> float | None:
        """Seconds until a view is due; None, and the thread is over, when there is none."""
        with self._lock:
            if not self._due:
                self._thread = None
                return None
            return max(0.0, min(self._due.values()) - time.monotonic())

    def _take_due(self, now: float) -> list[Flushable]:
        with self._lock:
            spread_s = len(self._due) / _MAX_FLUSHES_PER_S
            due = [view for view, when in self._due.items() if when <= now]
            for view in due:
                self._due[view] = now + max(view.min_interval_s, spread_s)
            return due

    def _flush(self, view: Flushable) -> None:
        with self._flushing:
            with self._lock:
                if view not in self._due:  # removed meanwhile
                    return
            try:
                wanted = view.flush()
                failed = False
            except Exception:
                _LOGGER.exception("A view cannot be refreshed")
                wanted, failed = True, True
        with self._lock:
            if self._due.get(view, 0.0) == 0.0:  # removed, or added anew, meanwhile
                return
            self._errors[view] = self._errors[view] + 1 if failed else 0
            if not wanted or self._errors[view] >= _MAX_ERRORS:
                del self._due[view], self._errors[view]
