"""Engines that run a fake model, slowed down or broken on purpose, for tests and measurements."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import time
from collections.abc import Callable

from kernelserve.config import EngineConfig
from kernelserve.errors import InvalidConfigError
from kernelserve.executor.executor import Progress
from kernelserve.executor.fake import FakeExecutor

__all__ = ["make_fake_executor"]

_KNOWN = {"start_seconds", "step_seconds", "fail", "tokenizer", "first_token"}


def make_fake_executor(config: EngineConfig, progress: Progress) -> FakeExecutor:
    """Make the executor of `config.model`, "fake" or for example "fake:step_seconds=0.1,start_seconds=2".

    `start_seconds` and `step_seconds` take time; `fail` ends the start: import, memory, crash (SIGSEGV), kill
    (SIGKILL), exit or error. `tokenizer` is a folder with a tokenizer.json: the fake then speaks its tokens from the
    id `first_token` on.
    """
    options = _parse(config.model)
    progress("load weights", 0.5)
    time.sleep(float(options.get("start_seconds", "0")))
    failure = options.get("fail")
    if failure is not None:
        _FAILURES[failure]()
    return FakeExecutor(
        config,
        progress,
        step_seconds=float(options.get("step_seconds", "0")),
        tokenizer_dir=options.get("tokenizer", ""),
        first_token=int(options.get("first_token", "10")),
    )


def _parse(model: str) -> dict[str, str]:
    _, _, text = model.partition(":")
    pairs = [part.partition("=") for part in text.split(",") if part]
    options = {key: value for key, _, value in pairs}
    unknown = options.keys() - _KNOWN
    if unknown or options.get("fail", "error") not in _FAILURES:
        raise InvalidConfigError(f"{model!r} is not a fake model: see make_fake_executor")
    return options


def _crash() -> None:
    ctypes.string_at(0)


def _error() -> None:
    raise RuntimeError("this fake model cannot be loaded")


def _memory() -> None:
    raise MemoryError("this fake model needs 1 EiB")


_FAILURES: dict[str, Callable[[], object]] = {
    "crash": _crash,
    "error": _error,
    "exit": lambda: os._exit(3),
    "import": lambda: importlib.import_module("kernelserve_package_that_is_missing"),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "memory": _memory,
}
