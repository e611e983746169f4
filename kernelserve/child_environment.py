"""The environment of the processes that we start."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["child_environment"]

_SCRUBBED = ("MPLBACKEND", "JPY_PARENT_PID", "JPY_SESSION_NAME")
"""Meant for the kernel alone: they would make a child draw into it, or end it for the wrong parent."""


def child_environment() -> dict[str, str]:
    """Return ours without what is meant for the kernel alone, and so that the child imports this very package."""
    environment = {key: value for key, value in os.environ.items() if key not in _SCRUBBED}
    root = Path(__file__).parents[1]
    if root.name not in ("site-packages", "dist-packages"):
        # A checkout that is on sys.path only in this process.
        paths = [str(root), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return environment
