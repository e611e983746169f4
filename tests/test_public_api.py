"""The names that users build on: a change here is a change of the interface."""

from __future__ import annotations

import kernelserve
from kernelserve import errors

ERRORS = {
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, Exception)
}
NAMES = {
    "AsyncLLM",
    "CompletionOutput",
    "EngineConfig",
    "LLM",
    "Logprob",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "__version__",
    "attach",
    "list_engines",
}


def test_exact_public_names() -> None:
    assert set(kernelserve.__all__) == NAMES | ERRORS
    assert len(kernelserve.__all__) == len(set(kernelserve.__all__))


def test_every_public_name_exists_and_is_documented() -> None:
    for name in kernelserve.__all__:
        value = getattr(kernelserve, name)
        if name != "__version__":
            assert value.__doc__, name


def test_dir_shows_the_public_names() -> None:
    assert set(kernelserve.__all__) <= set(dir(kernelserve))


def test_all_errors_have_one_root() -> None:
    for name in ERRORS:
        assert issubclass(getattr(errors, name), errors.KernelserveError)
