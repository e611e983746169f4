"""Makes what a model wrote safe to be rendered as Markdown: it can load nothing, run nothing, link only to the web.

Front ends render with different parsers and, in a trusted notebook, without a sanitizer, so nothing here relies on
reading Markdown exactly as they do: every piece is harmless even where a parser takes it for something else.

- Fenced blocks are written anew: at the margin, between blank lines, with a fence longer than any in them. All parsers
  agree on such a block. Everywhere else `<` becomes an entity.
- A code span keeps its backticks only if nothing in it could become a tag or a link; else it is a `<code>` of entities.
- A link needs `](`, a reference `]:`. Both are broken up, but in links that are read strictly and written anew.
"""

from __future__ import annotations

import re

from kernelserve_widgets.views.markdown_fences import fenced, read_code
from kernelserve_widgets.views.markdown_links import literal, read_link, safe_target

__all__ = ["safe_markdown"]

_LIST_ITEM = re.compile(r"^[ ]{0,8}([-*+]|\d{1,9}[.)])([ \t]|$)")
_INLINE = re.compile(
    r"""(?P<code>(?<!`)(?P<ticks>`+)(?!`)(?P<inside>[^\n]*?[^`\n])(?P=ticks)(?!`))
      | (?P<math>\$\$(?:(?!\n\n)[^$])+\$\$
            | (?<![\\$\w])\$(?=[^\s$])[^$\n]*?(?<=[^\s\\$])\$(?![\d$])
            | \\\([^\n]*?\\\) | \\\[(?:(?!\n\n|\\\[)[^\0])*?\\\]
            | \\begin\{(?P<env>\w+\*?)\}(?:(?!\n\n)[^\0]){0,2000}?\\end\{(?P=env)\})
      | (?P<escape>\\[!-/:-@\[-`{-~])
      | (?P<link>(?<!!)!*\[(?=[^\[\]\n]*\]\())
      | (?P<auto><(?:https?://|mailto:)[^\s<>]+>)
      | (?P<special>[<&] | \](?=\s*[(:]) | \bf(?=tp://) | (?<=^):(?=::) | (?<=^\ ):(?=::))""",
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)
_PLAIN_CODE = re.compile(r"[^<&\[\]!|\\$]*")


def safe_markdown(text: str) -> str:
    """Return Markdown that shows `text` with its headings, lists, tables, code, math and web links, nothing live."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    lines = text.split("\n")
    blocks: list[str] = []
    prose: list[str] = []
    place, in_list = 0, False
    while place < len(lines):
        line = lines[place]
        may_indent = not in_list and (not prose or not prose[-1].strip())
        code = read_code(lines, place, may_be_indented=may_indent)
        if code is None:
            prose.append(line)
            if line.strip():
                in_list = bool(_LIST_ITEM.match(line)) or (in_list and line[0] in " \t")
            place += 1
        else:
            blocks += [
                _safe_prose("\n".join([*prose, code.lead])),
                fenced(code.text, code.language),
            ]
            prose, place = [], code.end
    blocks.append(_safe_prose("\n".join(prose)))
    return "\n\n".join(block.strip("\n") for block in blocks if block.strip())


def _safe_prose(text: str) -> str:
    pieces: list[str] = []
    place = 0
    while (found := _INLINE.search(text, place)) is not None:
        pieces.append(text[place : found.start()])
        piece, place = _safe_piece(text, found)
        pieces.append(piece)
    pieces.append(text[place:])
    return "".join(pieces)


def _safe_piece(text: str, found: re.Match[str]) -> tuple[str, int]:
    """Return what to write for this match, and where to go on."""
    piece, end = found.group(), found.end()
    match found.lastgroup:
        case "code":
            return _safe_code_span(found), end
        case "math":
            return re.sub(r"\](?=\s*[(:])", "]{}", piece.replace("<", r"\lt ")), end
        case "escape":
            return literal(piece[1]), end
        case "link":
            return _safe_link(text, found)
        case "auto":
            target = safe_target(piece[1:-1])
            if target is not None:
                return f"[{literal(piece[1:-1])}]({target})", end
            return "&lt;", found.start() + 1
    return f"&#{ord(piece)};", end


def _safe_code_span(found: re.Match[str]) -> str:
    if _PLAIN_CODE.fullmatch(found.group("inside")):
        return found.group()
    inside = found.group("inside")
    if inside[:1] == inside[-1:] == " " and inside.strip():
        inside = inside[1:-1]
    return f"<code>{literal(inside)}</code>"


def _safe_link(text: str, found: re.Match[str]) -> tuple[str, int]:
    """A web link written anew, an image as a link; else only its beginning: its `](` is broken up later."""
    link = read_link(text, found.start())
    if link is None:
        return found.group(), found.end()
    marks, label, target, end = link
    shown = _safe_prose(label).strip() or literal(target)
    return f"{'&#33;' * (len(marks) - 1)}[{shown}]({target})", end
