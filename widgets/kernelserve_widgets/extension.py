"""`%load_ext kernelserve`: hangs the magics into a shell, and takes them out again."""

from __future__ import annotations

import atexit
from typing import Any

from kernelserve_widgets.magics.async_cells import AsyncCells
from kernelserve_widgets.magics.completer import MagicCompleter
from kernelserve_widgets.magics.kernelserve_magics import KernelServeMagics
from kernelserve_widgets.notebook_session import NotebookSession

__all__ = ["load_ipython_extension", "unload_ipython_extension"]

_MAGICS = KernelServeMagics.__name__


def load_ipython_extension(shell: Any) -> None:
    """Register the magics. Loading twice changes nothing."""
    if isinstance(shell.magics_manager.registry.get(_MAGICS), KernelServeMagics):
        return
    session = NotebookSession.of(shell)
    magics = KernelServeMagics(shell)
    shell.register_magics(magics)
    shell.input_transformers_post.append(AsyncCells(shell))
    shell.Completer.custom_matchers.append(MagicCompleter(session, shell).complete)
    atexit.register(session.close)


def unload_ipython_extension(shell: Any) -> None:
    """Take everything out again and end what runs in the background. The engine goes on, for %reload_ext."""
    magics = shell.magics_manager.registry.pop(_MAGICS, None)
    if magics is None:
        return
    for kind, table in magics.magics.items():
        for name in table:
            shell.magics_manager.magics[kind].pop(name, None)
    if magics in shell.configurables:
        shell.configurables.remove(magics)
    transformers, matchers = shell.input_transformers_post, shell.Completer.custom_matchers
    transformers[:] = [entry for entry in transformers if not isinstance(entry, AsyncCells)]
    matchers[:] = [m for m in matchers if not isinstance(getattr(m, "__self__", m), MagicCompleter)]
    session = NotebookSession.of(shell)
    atexit.unregister(session.close)
    session.close()
