"""The write end of an engine's standard input: as long as it is open, the engine knows that its owner lives."""

from __future__ import annotations

import contextlib
import os
import struct
import weakref

__all__ = ["LifelinePipe"]


class LifelinePipe:
    """Only this process may hold the pipe: it is closed in children that fork without an exec."""

    def __init__(self) -> None:
        self.read_fd, self._write_fd = os.pipe()
        itself = weakref.ref(self)

        def close_in_child() -> None:
            if (pipe := itself()) is not None:
                pipe.close()

        os.register_at_fork(after_in_child=close_in_child)

    def send(self, message: bytes) -> None:
        """Write a message with its length. It must be small: nobody may read yet."""
        os.write(self._write_fd, struct.pack(">I", len(message)) + message)

    def close_read_end(self) -> None:
        """Call it when the child has its copy."""
        if self.read_fd >= 0:
            os.close(self.read_fd)
            self.read_fd = -1

    def close(self) -> None:
        """Let go: an engine that lives for this process ends."""
        self.close_read_end()
        if self._write_fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._write_fd)
            self._write_fd = -1

    def __del__(self) -> None:
        self.close()
