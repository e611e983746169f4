"""kernelserve: a Jupyter-native interactive serving kernel."""

from __future__ import annotations

from kernelserve.version import __version__

__all__ = ["__version__"]
