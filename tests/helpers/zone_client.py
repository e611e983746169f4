"""The page's side of a drop zone in a test without a browser: sends files as static/picture_upload.js does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["CHUNK", "ZoneClient"]

CHUNK = 512 * 1024
Send = Callable[[dict[str, Any], list[bytes]], None]


class ZoneClient:
    """Sends messages through `send(content, buffers)`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._numbers = itertools.count(1)

    def hello(self) -> None:
        """Say that a page shows the zone."""
        self._send({"kind": "hello"}, [])

    def tell(self, kind: str, **more: Any) -> None:
        """Send another message."""
        self._send({"kind": kind} | more, [])

    def begin(self, data: bytes, name: str = "a.png", note: str = "", batch: str = "b") -> str:
        """Announce a file; returns the key of its upload."""
        key = f"u{next(self._numbers)}"
        self.tell("begin", upload=key, name=name, bytes=len(data), note=note, batch=batch)
        return key

    def chunk(self, key: str, data: bytes, at: int) -> None:
        """Send one chunk."""
        self._send({"kind": "chunk", "upload": key, "at": at}, [data[at : at + CHUNK]])

    def drop(
        self, *files: bytes, batch: str = "", order: Callable[..., Iterable[int]] = sorted
    ) -> None:
        """Drop files together, each in chunks of this order."""
        batch = batch or f"batch{next(self._numbers)}"
        for number, data in enumerate(files):
            key = self.begin(data, f"{number}.png", batch=batch)
            for at in order(range(0, len(data), CHUNK)):
                self.chunk(key, data, at)
        self.tell("end", batch=batch)
