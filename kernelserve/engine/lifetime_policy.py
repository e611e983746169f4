"""Decides when an engine has outlived its use."""

from __future__ import annotations

from kernelserve.config import Lifetime

__all__ = ["LifetimePolicy"]


class LifetimePolicy:
    """Asked about once a second. All times are readings of one monotonic clock.

    `kernel`: the lifeline ends it, not this policy. `linger`: `linger_s` after the last client is gone.
    `detached`: when it is told to. Each of them also ends `idle_unload_s` after its last request, if that is set.
    """

    def __init__(
        self, lifetime: Lifetime, *, linger_s: float, idle_unload_s: float | None, now: float
    ) -> None:
        self._lifetime = lifetime
        self._linger_s = linger_s
        self._idle_unload_s = idle_unload_s
        self._last_client = now

    def reason_to_end(
        self, now: float, *, num_clients: int, idle_since: float | None
    ) -> tuple[str, str] | None:
        """Return (code, message) if the engine should end. `idle_since` is None while it has requests."""
        if num_clients or idle_since is None:
            self._last_client = now
        elif self._lifetime == "linger" and now - self._last_client >= self._linger_s:
            return "linger", f"no client came back within {self._linger_s:g} s"
        limit = self._idle_unload_s
        if limit is not None and idle_since is not None and now - idle_since >= limit:
            return "unloaded", f"the engine unloaded itself after {limit:g} s without a request"
        return None
