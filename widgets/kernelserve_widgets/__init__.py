"""kernelserve in a notebook: magics, stream views, dashboard and timeline. Loaded by `%load_ext kernelserve`."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["Result", "dashboard", "dropzone", "timeline"]

_MODULES = {
    "Result": "result",
    "dashboard": "shortcuts",
    "dropzone": "shortcuts",
    "timeline": "shortcuts",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
