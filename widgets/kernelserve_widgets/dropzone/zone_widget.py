"""The comm of one drop zone: takes files in chunks, says what came of them, and what the zone holds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

import traitlets

import kernelserve as ks
from kernelserve_widgets.dropzone.upload import Upload
from kernelserve_widgets.dropzone.zone_limits import FindLimits
from kernelserve_widgets.views.quiet_widget import QuietWidget
from kernelserve_widgets.views.static_files import style

__all__ = ["Zone", "ZoneWidget"]

_LOGGER = logging.getLogger(__name__)
_MAX_UPLOADS = 4
"""Unfinished ones: each holds memory, and a page that went away never finishes its own."""
_MAX_ASKED = 8


class Zone(Protocol):
    """What the widget needs of its zone. Called in whatever thread a message arrives."""

    def to_json(self) -> dict[str, Any]:
        """Everything that a page shows of the zone."""

    def add(self, data: bytes, name: str, note: str, batch: str) -> None:
        """Take a picture. Raises InvalidRequestError if it is none."""

    def end_batch(self, batch: str | None) -> None:
        """All files of one drop are settled; None: of every one that has begun."""

    def remove(self, number: int) -> None:
        """Take one out."""

    def clear(self) -> None:
        """Take all out."""

    def greet(self) -> None:
        """A page shows the zone."""

    def end_wait(self) -> None:
        """Nobody is to wait for a picture any more."""


class ZoneWidget(QuietWidget):
    """Talks to static/dropzone.js; an upload has a key that the page made up.

    page                                            kernel
    begin {upload, name, bytes, note, batch} -->
    chunk {upload, at} + buffer              -->    got {upload, bytes}      so the page knows when to send more
    ask {upload}                             -->    got {upload, bytes, missing}
    ...                                             landed {upload} | refused {upload, text}, state
    end {batch}, remove, clear, cancel, hello -->   state
    """

    state = traitlets.Any(None, allow_none=True).tag(
        sync=True, to_json=lambda _, widget: widget.current_state()
    )

    def __init__(self, zone: Zone, find_limits: FindLimits) -> None:
        self._zone = zone
        self._find_limits = find_limits
        self._told_limits = find_limits()
        self._uploads: dict[str, tuple[Upload, str]] = {}
        self._handlers: dict[str, Callable[[dict[str, Any], list[Any]], None]] = {
            "begin": self._begin,
            "chunk": self._take_chunk,
            "ask": lambda message, _: self._acknowledge(str(message["upload"]), asked=True),
            "drop": lambda message, _: self._forget(str(message["upload"])),
            "end": lambda message, _: zone.end_batch(str(message["batch"])),
            "remove": lambda message, _: zone.remove(int(message["number"])),
            "clear": lambda _message, _: zone.clear(),
            "cancel": lambda _message, _: zone.end_wait(),
            "hello": lambda _message, _: zone.greet(),
        }
        super().__init__("dropzone", css=style("dropzone"))

    def current_state(self) -> dict[str, Any]:
        """Return what a page needs that hears of this widget now."""
        self._told_limits = self._find_limits()
        return {"limits": self._told_limits.to_json()} | self._zone.to_json()

    def refresh(self) -> None:
        """Tell all pages what the zone holds."""
        self.tell({"state": self.current_state()})

    def renew_limits(self) -> None:
        """Tell all pages if other limits apply now."""
        if self._find_limits() != self._told_limits:
            self.refresh()

    def _receive(self, _: Any, content: Any, buffers: Any) -> None:
        """A message that cannot be understood ends its upload, and is in the log; it never ends the kernel's loop."""
        handler = (
            self._handlers.get(str(content.get("kind"))) if isinstance(content, dict) else None
        )
        if handler is None:
            return
        try:
            handler(content, list(buffers or ()))
        except Exception as error:
            _LOGGER.exception("A message of a drop zone cannot be handled")
            self._refuse(str(content.get("upload", "")), f"{type(error).__name__}: {error}")

    def _begin(self, message: dict[str, Any], _: list[Any]) -> None:
        key, name = str(message["upload"]), str(message["name"])
        try:
            upload = Upload(name, int(message["bytes"]), str(message["note"]), self._find_limits())
        except ks.InvalidRequestError as error:
            self._refuse(key, f"{name}: {error}")
            return
        with self.lock:
            while len(self._uploads) >= _MAX_UPLOADS:
                del self._uploads[next(iter(self._uploads))]
            self._uploads[key] = (upload, str(message["batch"]))

    def _take_chunk(self, message: dict[str, Any], buffers: list[Any]) -> None:
        key = str(message["upload"])
        with self.lock:
            known = self._uploads.get(key)
            if known is None:  # given up, and the page was told so
                return
            upload, batch = known
            try:
                upload.put(int(message["at"]), buffers[0])
            except ks.InvalidRequestError as error:
                self._refuse(key, str(error))
                return
            if not upload.is_complete:
                self._acknowledge(key)
                return
            del self._uploads[key]
        self._land(key, upload, batch)

    def _land(self, key: str, upload: Upload, batch: str) -> None:
        try:
            self._zone.add(upload.data, upload.name, upload.note, batch)
        except ks.InvalidRequestError as error:
            self._refuse(key, f"{upload.name}: {error}")
            return
        self.tell({"landed": key})

    def _acknowledge(self, key: str, *, asked: bool = False) -> None:
        with self.lock:
            known = self._uploads.get(key)
            if known is not None:
                missing = known[0].missing(_MAX_ASKED) if asked else []
                self.tell({"got": key, "bytes": known[0].num_received, "missing": missing})
            elif asked:
                self.tell({"unknown": key})

    def _refuse(self, key: str, text: str) -> None:
        self._forget(key)
        self.tell({"refused": key, "text": text})

    def _forget(self, key: str) -> None:
        with self.lock:
            self._uploads.pop(key, None)
