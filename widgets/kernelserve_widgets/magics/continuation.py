"""The cell that goes on with an earlier answer from one of its tokens, perhaps another one than was chosen."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from kernelserve_widgets.magics.generate_options import generate_parser
from kernelserve_widgets.result import Result

__all__ = ["continuation_cell"]

_LEFT_OUT = frozenset(
    {"-o", "--output", "--chat", "--system", "--continue-from", "-t", "--template", "--raw"}
    | {"--image"}
)
"""Options that belonged to the first run: its name and its prompt. Its pictures go along by themselves."""


def continuation_cell(
    result: Result, decode: Callable[[list[int]], str], token_index: int, token_id: int
) -> str:
    """Return the source of the cell; its body shows the text up to and with the new token."""
    tokens = [*result.token_ids[:token_index], token_id]
    head = f"{result.request_id}:{token_index}:{token_id}"
    return f"%%generate --continue-from {head}{_kept(result.line)}\n{decode(tokens)}"


def _kept(line: str) -> str:
    parser, words, kept = generate_parser(), shlex.split(line), []
    while words:
        word = words.pop(0)
        option = word.partition("=")[0]
        group = [word]
        if parser.takes_value(option) and "=" not in word and words:
            group.append(words.pop(0))
        if option not in _LEFT_OUT:
            kept += group
    return "".join(f" {shlex.quote(word)}" for word in kept)
