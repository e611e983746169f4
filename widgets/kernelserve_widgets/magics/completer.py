"""Completes options, their values, and names of variables, requests and chats on the lines of our magics."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,
)

import kernelserve as ks
from kernelserve_widgets.magics.generate_options import generate_parser
from kernelserve_widgets.magics.image_names import IMAGE_WORDS
from kernelserve_widgets.magics.option_parser import OptionParser
from kernelserve_widgets.magics.serve_options import serve_parser
from kernelserve_widgets.notebook_session import NotebookSession

__all__ = ["MagicCompleter"]

_LINE = re.compile(r"^(%%?)(generate|serve|engine|abort|last|chat|dashboard)\s(.*)$", re.DOTALL)
_WORDS = {
    "engine": ["status", "logs", "restart", "stop", "list", "attach"],
    "dashboard": ["close", "dark"],
}
_MODEL_FILES = ("config.json",)


class MagicCompleter:
    """A matcher of IPython's completer. Answers only in lines that begin with one of our magics."""

    def __init__(self, session: NotebookSession, shell: Any) -> None:
        self._session = session
        self._shell = shell
        self._parsers: dict[str, OptionParser] = {}
        self._values: dict[str, Callable[[], Iterable[str]]] = {
            "--chat": lambda: session.chats.names,
            "-o": self._variables,
            "--output": self._variables,
            "--image": lambda: [*self._variables(), *IMAGE_WORDS],
            "--continue-from": lambda: session.runs,
        }

    def matches(self, line: str, token: str) -> list[str] | None:
        """Return what may stand for `token`, the last word of `line`; None if the line is none of ours."""
        found = _LINE.match(line)
        if found is None:
            return None
        magic, before = found[2], found[3][: len(found[3]) - len(token)].split()
        return sorted(
            word for word in self._candidates(magic, before, token) if word.startswith(token)
        )

    @context_matcher(identifier="kernelserve")  # type: ignore[untyped-decorator]
    def complete(self, context: CompletionContext) -> SimpleMatcherResult:
        """Answer IPython's completer."""
        line = context.full_text.split("\n")[context.cursor_line][: context.cursor_position]
        if context.cursor_line > 0:  # the body of a %%generate is text, not code
            first = context.full_text.partition("\n")[0]
            return _answer(
                [], "", is_ours=first.startswith("%%") and _LINE.match(f"{first} ") is not None
            )
        token = line.rpartition(" ")[2]
        words = self.matches(line, token)
        return _answer(words or [], token, is_ours=words is not None)

    def _candidates(self, magic: str, before: list[str], token: str) -> Iterable[str]:
        if magic in ("generate", "serve"):
            return self._option_words(magic, before, token)
        if magic in ("abort", "last"):
            running = (name for name, run in self._session.runs.items() if not run.result.finished)
            return ["all", *running] if magic == "abort" else list(self._session.runs)
        if magic == "chat":
            return self._session.chats.names if before else ["list", "show", "reset"]
        if magic == "engine" and before == ["attach"]:
            return [engine.name for engine in ks.list_engines()]
        return [] if before else _WORDS[magic]

    def _option_words(self, magic: str, before: list[str], token: str) -> Iterable[str]:
        parser = self._parser(magic)
        option = before[-1] if before else ""
        if parser.takes_value(option):
            values = self._values.get(option)
            return values() if values is not None else parser.choices_of(option)
        if magic == "serve" and not token.startswith("-"):
            return [*self._models(token), *parser.options]
        return parser.options

    def _parser(self, magic: str) -> OptionParser:
        if magic not in self._parsers:
            self._parsers[magic] = generate_parser() if magic == "generate" else serve_parser()
        return self._parsers[magic]

    def _variables(self) -> list[str]:
        hidden = self._shell.user_ns_hidden
        return [
            name for name in self._shell.user_ns if not name.startswith("_") and name not in hidden
        ]

    @staticmethod
    def _models(token: str) -> list[str]:
        """The default model, and folders and files that begin with `token` and look like a model."""
        parent, _, _ = token.rpartition("/")
        folder = Path(parent).expanduser() if parent else Path()
        prefix = f"{parent}/" if parent else ""
        found = [ks.EngineConfig().model]
        try:
            entries = sorted(folder.iterdir())
        except OSError:
            return found
        for entry in entries:
            if entry.suffix == ".gguf" or any((entry / name).exists() for name in _MODEL_FILES):
                found.append(f"{prefix}{entry.name}")
            elif entry.is_dir() and not entry.name.startswith("."):
                found.append(f"{prefix}{entry.name}/")
        return found


def _answer(words: list[str], token: str, *, is_ours: bool) -> SimpleMatcherResult:
    completions = [SimpleCompletion(word, type="option") for word in words]
    return {"completions": completions, "matched_fragment": token, "suppress": is_ours}
