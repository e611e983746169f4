"""Notices an engine that is there but does not answer."""

from __future__ import annotations

from collections.abc import Callable

import anyio

__all__ = ["Heartbeat"]

_BEAT_S = 1.0
_LOADING_TIMEOUT_S = 60.0
"""While an engine loads, a long native call may keep all its threads from running."""


class Heartbeat:
    """Pings the engine's busy loop and counts the silence, in own beats rather than by a clock: a pause of this
    process is not one of the engine. A step that takes long is silence too, so the timeout must be longer than it.
    """

    def __init__(
        self, timeout: float, *, send_ping: Callable[[], None], on_silence: Callable[[float], None]
    ) -> None:
        self._timeout = timeout
        self._send_ping = send_ping
        self._on_silence = on_silence
        self._silent_s = 0.0
        self._awaits_answer = False
        self.engine_is_ready = False

    def hear(self, *, is_answer: bool = False) -> None:
        """Note a sign of life."""
        self._silent_s = 0.0
        if is_answer:
            self._awaits_answer = False

    async def run(self) -> None:
        """Beat until the silence has been too long."""
        beat_s = min(_BEAT_S, self._timeout / 4)
        while True:
            await anyio.sleep(beat_s)
            self._silent_s += beat_s
            ready = self.engine_is_ready
            limit = self._timeout if ready else max(self._timeout, _LOADING_TIMEOUT_S)
            if self._silent_s > limit:
                self._on_silence(limit)
                return
            if ready and not self._awaits_answer:
                self._awaits_answer = True
                self._send_ping()
