"""The Chromium that the machine has: where it is, and how it is started without a display."""

from __future__ import annotations

import os
import shutil

import pytest

__all__ = ["CHROMIUM_FLAGS", "require_chromium"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_HOW_TO_INSTALL = (
    "no Chromium found: install one (on Debian: apt-get install --no-install-recommends chromium "
    "fonts-dejavu-core) or name one with KERNELSERVE_CHROMIUM=/path/to/chromium"
)
# It draws our own pages only and asks the network for nothing. The sandbox refuses to run as root.
CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def require_chromium() -> str:
    """Return the path of KERNELSERVE_CHROMIUM, else of the first Chromium on the PATH.

    Without one the test is skipped, but fails in CI.
    """
    for name in (os.environ.get("KERNELSERVE_CHROMIUM"), *_NAMES):
        if name and (path := shutil.which(name)):
            return path
    if os.environ.get("CI") == "true":
        pytest.fail(_HOW_TO_INSTALL)
    pytest.skip(_HOW_TO_INSTALL)
