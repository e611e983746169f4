"""kernelserve: a Jupyter-native interactive serving kernel."""

from __future__ import annotations

__version__ = "0.1.0"
