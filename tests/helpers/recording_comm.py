"""Comms that keep what is sent, for widgets in a plain Python without a kernel."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import comm
import pytest
from comm.base_comm import BaseComm

__all__ = ["CommLog", "record_comms"]


@dataclass
class CommLog:
    """All comms of a test, in the order in which they were opened."""

    comms: list[RecordingComm] = field(default_factory=list)

    @property
    def num_open(self) -> int:
        """Comms that a front end would still know."""
        return sum(not one.closed for one in self.comms)

    def saved_state(self) -> dict[str, dict[str, Any]]:
        """Return what nbclient saves with a notebook: it merges states, and takes no notice of a close."""
        saved: dict[str, dict[str, Any]] = {}
        for one in self.comms:
            for message_type, data in one.messages:
                if message_type != "comm_close" and "state" in data:
                    saved.setdefault(one.comm_id, {}).update(data["state"])
        return saved


class RecordingComm(BaseComm):
    """Keeps (message type, data) of everything that the kernel sends."""

    log: CommLog

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.messages: list[tuple[str, dict[str, Any]]] = []
        self.closed = False
        super().__init__(*args, **kwargs)

    def publish_msg(
        self,
        msg_type: str,
        data: Any = None,
        metadata: Any = None,
        buffers: Any = None,
        **keys: Any,
    ) -> None:
        """Keep a copy, as it would go over the wire."""
        self.messages.append((msg_type, json.loads(json.dumps(data or {}, allow_nan=False))))
        self.closed |= msg_type == "comm_close"

    @property
    def custom(self) -> list[dict[str, Any]]:
        """Custom messages so far."""
        return [data["content"] for _, data in self.messages if data.get("method") == "custom"]

    @property
    def sizes(self) -> list[int]:
        """Bytes of each message after the opening one."""
        return [len(json.dumps(data, ensure_ascii=False).encode()) for _, data in self.messages[1:]]

    def click(self, content: dict[str, Any]) -> None:
        """Let a custom message of a front end arrive."""
        self.handle_msg(
            {"content": {"data": {"method": "custom", "content": content}}, "buffers": []}
        )


def record_comms(monkeypatch: pytest.MonkeyPatch) -> CommLog:
    """Make widgets use recording comms until the end of the test."""
    log = CommLog()

    def create(*args: Any, **kwargs: Any) -> RecordingComm:
        made = RecordingComm(*args, **kwargs)
        log.comms.append(made)
        return made

    monkeypatch.setattr(comm, "create_comm", create)
    return log
