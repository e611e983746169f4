"""The names that users build on: a change here is a change of the interface."""

from __future__ import annotations

import kernelserve
from kernelserve import errors

NAMES = {
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
    "LLM",
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
}


def test_exact_public_names() -> None:
    assert set(kernelserve.__all__) == NAMES
    assert len(kernelserve.__all__) == len(NAMES)


def test_every_public_name_is_documented() -> None:
    for name in NAMES - {"__version__"}:
        assert getattr(kernelserve, name).__doc__, name


def test_public_methods_are_documented() -> None:
    for cls in (kernelserve.LLM, kernelserve.AsyncLLM):
        for name, value in vars(cls).items():
            if not name.startswith("_") and callable(value):
                assert value.__doc__, f"{cls.__name__}.{name}"


def test_all_errors_have_one_root() -> None:
    for name in errors.__all__:
        if name.endswith("Error"):
            assert issubclass(getattr(errors, name), errors.KernelserveError)
