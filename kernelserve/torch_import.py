"""Makes importing torch a quarter faster, by leaving for later what it teaches its operators about the `meta` device.

Tensors of that device have a shape and no numbers. transformers makes models of them before it reads weights, and
compilers trace with them; a model that runs in our own kernels needs neither. Nothing else of torch is touched, and
whoever looks for the left out module, torch itself included, gets it.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any

__all__ = ["import_torch", "load_meta_operators"]

_MODULE = "torch._meta_registrations"


def import_torch() -> None:
    """Import torch without its operators of the `meta` device, if it is not there yet."""
    if "torch" in sys.modules:
        return
    sys.modules[_MODULE] = _Placeholder(_MODULE)
    try:
        importlib.import_module("torch")
    finally:
        _remove_placeholder()


def load_meta_operators() -> None:
    """Make up for what `import_torch` has left out, if it has. Takes half a second."""
    _remove_placeholder()
    with suppress(ModuleNotFoundError):  # a release of torch that has them elsewhere
        importlib.import_module(_MODULE)


class _Placeholder(ModuleType):
    """Becomes the module as soon as anybody wants something of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # only the import system asks for these
            raise AttributeError(name)
        load_meta_operators()
        return getattr(sys.modules[_MODULE], name)


def _remove_placeholder() -> None:
    if isinstance(sys.modules.get(_MODULE), _Placeholder):
        del sys.modules[_MODULE]
