"""Turns a top-level %%generate into an awaiting cell, so that its Stop button works while it runs."""

from __future__ import annotations

import re
import sys
from typing import Any

from kernelserve_widgets.shell import can_await

__all__ = ["AsyncCells"]

_MAGIC_CALL = re.compile(r"get_ipython\(\)\.run_cell_magic\('generate', (.*)", re.DOTALL)
_RUNNING = {"run_code", "run_cell_magic", "run_line_magic"}


class AsyncCells:
    """An input transformer that comes after IPython's own.

        %%generate -o a          get_ipython().run_cell_magic('generate', ...)     await ...generate_async(...)
        Hello            ----->                                              ----->

    Magics cannot be awaited, cells can. While a cell awaits, the kernel serves the messages of widgets (ipykernel
    7.4). Under %%time, %%capture and other code that runs cells the magic stays as it is, and blocks.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def __call__(self, lines: list[str]) -> list[str]:
        if not lines or not lines[0].startswith("get_ipython().run_cell_magic('generate', "):
            return lines
        found = _MAGIC_CALL.fullmatch("".join(lines).rstrip("\n"))
        if found is None or not can_await(self._shell) or _is_inside_a_cell():
            return lines
        return [
            f"await get_ipython().magics_manager.registry['KernelServeMagics'].generate_async({found[1]}\n"
        ]


def _is_inside_a_cell() -> bool:
    """Whether the code of a cell, rather than the kernel, asks for the transformation."""
    frame = sys._getframe(1)
    while (caller := frame.f_back) is not None:
        if caller.f_code.co_name in _RUNNING and "IPython" in caller.f_code.co_filename:
            return True
        frame = caller
    return False
