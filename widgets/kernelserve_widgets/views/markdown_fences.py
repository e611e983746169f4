"""Finds the blocks of code in what a model wrote, and writes blocks that no content can end."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["CodeBlock", "fenced", "read_code", "single_fenced_block"]

_FENCE = re.compile(
    r"^(?P<lead>(?:[ \t]|>|(?:[-*+]|\d{1,9}[.)])[ \t]+)*)(?P<marks>`{3,}|~{3,})(?P<info>[^`\n]*)$"
)
_INDENT = re.compile(r"^(?: {4}|\t)")
_LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,30}")
_DRAWN = {"math", "mermaid", "svg", "vega", "vega-lite"}
"""Languages of fences that some front end draws instead of showing. They are shown without a language."""


class CodeBlock(NamedTuple):
    """A block of code, fenced or indented."""

    text: str
    language: str
    lead: str
    """List and quote marks on the line of the fence."""
    end: int
    """The line behind it."""


def read_code(lines: list[str], place: int, *, may_be_indented: bool) -> CodeBlock | None:
    """Return the block that begins at this line, finished or not; None if none does."""
    opening = _FENCE.match(lines[place])
    if opening is not None:
        return _read_fence(lines, place, opening)
    if not may_be_indented or not _is_indented(lines[place]):
        return None
    end = place
    while end < len(lines) and _is_indented(lines[end]):
        end += 1
    return CodeBlock("\n".join(_INDENT.sub("", line) for line in lines[place:end]), "", "", end)


def fenced(code: str, language: str = "") -> str:
    """Return a block that shows `code` as it is, whatever backticks it has."""
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    found = _LANGUAGE.match(language)
    name = found.group() if found and found.group().lower() not in _DRAWN else ""
    return f"{fence}{name}\n{code}\n{fence}"


def single_fenced_block(text: str) -> tuple[str, str] | None:
    """Return (code, language) if `text` is one fenced block, finished or not, and nothing else."""
    lines = text.strip("\n").split("\n")
    block = read_code(lines, 0, may_be_indented=False)
    if block is None or block.lead.strip() or any(line.strip() for line in lines[block.end :]):
        return None
    return block.text, block.language


def _read_fence(lines: list[str], place: int, opening: re.Match[str]) -> CodeBlock:
    marks, lead = opening.group("marks"), opening.group("lead")
    closing = re.compile(rf"^[ \t>]*{re.escape(marks[0])}{{{len(marks)},}}[ \t]*$")
    end = place + 1
    while end < len(lines) and not closing.match(lines[end]):
        end += 1
    margin = re.compile(
        rf"^[ \t>]{{0,{len(lead)}}}" if ">" in lead else rf"^[ \t]{{0,{len(lead)}}}"
    )
    code = "\n".join(margin.sub("", line) for line in lines[place + 1 : end])
    return CodeBlock(code, opening.group("info").strip(), lead.strip(), end + 1)


def _is_indented(line: str) -> bool:
    return _INDENT.match(line) is not None and bool(line.strip())
