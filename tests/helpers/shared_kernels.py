"""Kernels that the tests of a module share, as good as new for each of them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from tests.helpers.kernel import Kernel, start_kernel
from tests.helpers.leftovers import assert_nothing_left

__all__ = ["SharedKernels"]

_CLEAN = """
import contextlib, kernelserve
from kernelserve_widgets.notebook_session import NotebookSession
get_ipython().extension_manager.unload_extension("kernelserve")
NotebookSession.current().close()
NotebookSession.current().forget_engine()
del get_ipython().kernelserve
for engine in kernelserve.list_engines():  # also one that a traceback still holds
    with contextlib.suppress(kernelserve.KernelserveError):  # or that has just ended
        kernelserve.LLM.attach(engine.engine_id).stop()
get_ipython().reset(aggressive=False)
"""


class SharedKernels:
    """One kernel of each ipykernel, started when first asked for. One that does not come clean is not used again."""

    def __init__(self, runtime_folder: Path) -> None:
        self.runtime_folder = runtime_folder
        """Of the engines of all its kernels; empty between two tests."""
        self._contexts: dict[str, AbstractContextManager[Kernel]] = {}
        self._kernels: dict[str, Kernel] = {}

    def get(self, ipykernel: str) -> Kernel:
        """Return the kernel of this ipykernel, which has no engine and no variable."""
        if ipykernel not in self._kernels:
            context = start_kernel(
                ipykernel=ipykernel, KERNELSERVE_RUNTIME_DIR=str(self.runtime_folder)
            )
            self._kernels[ipykernel] = context.__enter__()
            self._contexts[ipykernel] = context
        return self._kernels[ipykernel]

    def clean(self, ipykernel: str) -> None:
        """Take out what a test has left, and fail unless its engines and their files are gone."""
        try:
            self._kernels[ipykernel].ok(_CLEAN, timeout=20)
            assert_nothing_left(self.runtime_folder, timeout=8)
        except BaseException:
            self._end(ipykernel)
            raise

    def close(self) -> None:
        """End all kernels."""
        for ipykernel in list(self._kernels):
            self._end(ipykernel)

    def _end(self, ipykernel: str) -> None:
        del self._kernels[ipykernel]
        self._contexts.pop(ipykernel).__exit__(None, None, None)
