"""How a failing magic looks: one readable line first, no foreign traceback."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from kernelserve.errors import EngineStartError, KernelserveError

__all__ = ["brief_errors", "briefly"]

_RED, _DIM, _PLAIN = "\x1b[31m", "\x1b[2m", "\x1b[0m"
_F = TypeVar("_F", bound=Callable[..., Any])


@contextmanager
def brief_errors() -> Iterator[None]:
    """Let the errors of kernelserve, and interrupts, be shown without their traceback; the cell still fails."""
    try:
        yield
    except (KernelserveError, KeyboardInterrupt) as error:
        # IPython asks an exception for its own rendering. The traceback itself stays with the exception.
        error._render_traceback_ = functools.partial(_render, error)  # type: ignore[union-attr]
        raise


def briefly(function: _F) -> _F:
    """Apply `brief_errors` to a magic."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with brief_errors():
            return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def _render(error: BaseException) -> list[str]:
    first, _, rest = str(error).partition("\n")
    lines = [f"{_RED}{type(error).__name__}{_PLAIN}: {first}"]
    lines += [f"{_DIM}{line}{_PLAIN}" for line in rest.splitlines()]
    if isinstance(error, EngineStartError) and error.log_path:
        lines.append(f"{_DIM}%engine logs shows the end of it.{_PLAIN}")
    return lines
