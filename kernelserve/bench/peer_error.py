"""The error of a comparison."""

from __future__ import annotations

from kernelserve.errors import KernelserveError

__all__ = ["PeerError"]


class PeerError(KernelserveError):
    """An engine to compare with is not there, did not load or did not answer."""
