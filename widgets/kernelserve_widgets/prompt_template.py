"""Fills a prompt with the notebook's names, when `--template` asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelserve.errors import InvalidRequestError

__all__ = ["render_prompt"]


def render_prompt(body: str, names: Mapping[str, Any]) -> str:
    """Render `body` once as sandboxed Jinja2 over `names`; values are inserted as they are, never rendered again.

    Raises InvalidRequestError for a missing name, which it names, a syntax error, with its line, and whatever the
    template may not do.
    """
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
    )
    try:
        return environment.from_string(body).render(names)
    except jinja2.UndefinedError as error:
        raise InvalidRequestError(f"--template: {error.message}") from None
    except jinja2.TemplateSyntaxError as error:
        raise InvalidRequestError(
            f"--template: line {error.lineno} of the prompt: {error.message}; without --template the prompt is "
            "sent as it is"
        ) from None
    except jinja2.exceptions.SecurityError as error:
        raise InvalidRequestError(f"--template: {error}") from None
    except Exception as error:
        raise InvalidRequestError(f"--template: {type(error).__name__}: {error}") from error
