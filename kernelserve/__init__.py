"""kernelserve: a Jupyter-native interactive serving kernel for language models.

The public names are loaded when they are first used: the engine process imports this package too, and needs none of
the client.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from kernelserve.version import __version__

if TYPE_CHECKING:
    from kernelserve.client.async_llm import AsyncLLM
    from kernelserve.client.engine_options import EngineOptions
    from kernelserve.client.llm import LLM
    from kernelserve.client.pending_request import PendingRequest
    from kernelserve.client.registry import list_engines
    from kernelserve.config import EngineConfig
    from kernelserve.errors import (
        BatchError,
        EngineDeadError,
        EngineError,
        EngineRequestError,
        EngineStartError,
        InvalidConfigError,
        InvalidRequestError,
        KernelserveError,
        ProtocolError,
    )
    from kernelserve.multimodal.image_limits import ImageLimits
    from kernelserve.multimodal.image_reader import ImageReader
    from kernelserve.outputs import CompletionOutput, Logprob, RequestOutput
    from kernelserve.sampling_params import RequestOutputKind, SamplingParams

__all__ = [
    "LLM",
    "AsyncLLM",
    "BatchError",
    "CompletionOutput",
    "EngineConfig",
    "EngineDeadError",
    "EngineError",
    "EngineOptions",
    "EngineRequestError",
    "EngineStartError",
    "ImageLimits",
    "ImageReader",
    "InvalidConfigError",
    "InvalidRequestError",
    "KernelserveError",
    "Logprob",
    "PendingRequest",
    "ProtocolError",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "__version__",
    "dashboard",
    "dropzone",
    "list_engines",
    "timeline",
]

_MODULES = {
    "LLM": "client.llm",
    "AsyncLLM": "client.async_llm",
    "EngineOptions": "client.engine_options",
    "PendingRequest": "client.pending_request",
    "list_engines": "client.registry",
    "EngineConfig": "config",
    "ImageLimits": "multimodal.image_limits",
    "ImageReader": "multimodal.image_reader",
    "CompletionOutput": "outputs",
    "Logprob": "outputs",
    "RequestOutput": "outputs",
    "RequestOutputKind": "sampling_params",
    "SamplingParams": "sampling_params",
}
"""Public name -> module of this package; the errors are all in one."""
_NOTEBOOK = {"dashboard", "dropzone", "timeline"}
"""Public names that live in the notebook part, which needs IPython."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _NOTEBOOK:
        return getattr(_notebook_part("shortcuts"), name)
    module = importlib.import_module(f"{__name__}.{_MODULES.get(name, 'errors')}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return __all__


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext kernelserve`: the magics, views and dashboards of `kernelserve_widgets`."""
    _notebook_part("extension").load_ipython_extension(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext kernelserve`."""
    _notebook_part("extension").unload_ipython_extension(shell)


def _notebook_part(module: str) -> Any:
    try:
        return importlib.import_module(f"kernelserve_widgets.{module}")
    except ImportError as error:
        raise ImportError(
            f"the notebook part of kernelserve {__version__} cannot be imported in {sys.executable}: {error}. "
            "Install it there: pip install 'kernelserve[notebook]'"
        ) from error
