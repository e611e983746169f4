"""The cell that goes on with an earlier answer from one of its tokens, perhaps another one than was chosen."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from kernelserve_widgets.magics.generate_options import generate_parser

__all__ = ["continuation_cell"]

_LEFT_OUT = {"-o", "--output", "--chat", "--system", "--continue-from", "-t", "--template", "--raw"}
"""Options that belonged to the first run: its name and its prompt."""


def continuation_cell(request_id: str, line: str, text: str, tokens: Sequence[int]) -> str:
    """Return the source of the new cell.

    `line` has the options of the first run, `tokens` the ids up to and with the chosen one, `text` what they say.
    """
    head = f"{request_id}:{len(tokens) - 1}:{tokens[-1]}"
    return f"%%generate --continue-from {head}{_kept(line)}\n{text}"


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
