"""What kernels send to a page: how many messages and bytes, of which kinds."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass

from playwright.sync_api import Page, WebSocket

__all__ = ["KernelMessage", "KernelTraffic"]

_NOT_COUNTED = {"status", "comm_open", "execute_input"}


@dataclass(frozen=True, slots=True)
class KernelMessage:
    """One message from a kernel to the page."""

    at: float
    """When it came, by time.monotonic()."""
    channel: str
    kind: str
    size: int
    """Bytes of the whole frame."""


class KernelTraffic:
    """Listens to the kernel websockets of a page from now on."""

    def __init__(self, page: Page) -> None:
        self.messages: list[KernelMessage] = []
        page.on("websocket", self._watch)

    def clear(self) -> None:
        """Forget what came so far."""
        self.messages.clear()

    def kinds(self) -> Counter[str]:
        """Number of messages on the output channel by their type."""
        return Counter(message.kind for message in self.messages if message.channel == "iopub")

    def rates(self) -> tuple[float, float]:
        """Messages and bytes a second, from the first message to the last, of those that the server's limits count."""
        counted = [m for m in self.messages if m.channel == "iopub" and m.kind not in _NOT_COUNTED]
        if len(counted) < 2:
            return 0.0, 0.0
        seconds = max(1e-3, counted[-1].at - counted[0].at)
        return len(counted) / seconds, sum(message.size for message in counted) / seconds

    def _watch(self, socket: WebSocket) -> None:
        if "/api/kernels/" in socket.url:
            socket.on("framereceived", self._note)

    def _note(self, frame: bytes | str) -> None:
        if isinstance(frame, bytes):
            channel, header = _parse(frame)
            kind = json.loads(header)["msg_type"]
            self.messages.append(KernelMessage(time.monotonic(), channel, kind, len(frame)))


def _parse(frame: bytes) -> tuple[str, bytes]:
    """Return channel and header of a frame of v1.kernel.websocket.jupyter.org.

    It begins with a count and as many offsets, 8 bytes each: of the channel, of the header, and so on.
    """
    offsets = [int.from_bytes(frame[8 * i : 8 * i + 8], "little") for i in range(1, 4)]
    return frame[offsets[0] : offsets[1]].decode(), frame[offsets[1] : offsets[2]]
