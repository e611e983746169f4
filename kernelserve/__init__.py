"""kernelserve: a Jupyter-native interactive serving kernel for language models."""

from __future__ import annotations

from kernelserve.client.async_llm import AsyncLLM
from kernelserve.client.llm import LLM
from kernelserve.client.registry import list_engines
from kernelserve.config import EngineConfig
from kernelserve.errors import (
    EngineDeadError,
    EngineError,
    EngineRequestError,
    EngineStartError,
    InvalidConfigError,
    InvalidRequestError,
    KernelserveError,
    ProtocolError,
)
from kernelserve.outputs import CompletionOutput, Logprob, RequestOutput
from kernelserve.sampling_params import RequestOutputKind, SamplingParams
from kernelserve.version import __version__

__all__ = [
    "LLM",
    "AsyncLLM",
    "CompletionOutput",
    "EngineConfig",
    "EngineDeadError",
    "EngineError",
    "EngineRequestError",
    "EngineStartError",
    "InvalidConfigError",
    "InvalidRequestError",
    "KernelserveError",
    "Logprob",
    "ProtocolError",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "__version__",
    "list_engines",
]
