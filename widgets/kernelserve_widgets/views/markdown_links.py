"""Reads a link that a model wrote and writes it anew if it leads to the web or to a mail address."""

from __future__ import annotations

import html
import re
from urllib.parse import quote

__all__ = ["literal", "read_link", "safe_target"]

_LINK = re.compile(
    r"""(?P<marks>!*)\[(?P<label>[^\[\]\n]*)\]\([ \t]*
        (?:<(?P<angled>[^<>\n]*)>|(?P<bare>(?:[^\s()<>]|\([^\s()<>]*\))+))
        (?:[ \t]+(?:"[^"\n]*"|'[^'\n]*'|\([^()\n]*\)))?[ \t]*\)""",
    re.VERBOSE,
)
_ALLOWED = re.compile(r"(?:https?://[^/?#\s]|mailto:[^\s])", re.IGNORECASE)
_SAFE_IN_TARGET = "-._~:/?#@+,;=%&"
_LONE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")


def read_link(text: str, place: int) -> tuple[str, str, str, int] | None:
    """Return (`!` marks, label, target, end) of the link or image at `place`, None if there is no safe one."""
    found = _LINK.match(text, place)
    if found is None:
        return None
    target = safe_target(found.group("angled") or found.group("bare") or "")
    if target is None:
        return None
    return found.group("marks"), found.group("label"), target, found.end()


def safe_target(written: str) -> str | None:
    """Return the address to link to, None unless it is http, https or mailto.

    It is percent-encoded so that no parser can end it early, and read the way browsers do: entities and escapes are
    resolved as often as they are nested, control characters and spaces in it do not count.
    """
    address = written
    for _ in range(8):
        resolved = _ESCAPE.sub(r"\1", html.unescape(address))
        if resolved == address:
            break
        address = resolved
    else:
        return None
    address = "".join(char for char in address if char > " " and char.isprintable())
    if _ALLOWED.match(address) is None:
        return None
    encoded = quote(_LONE_PERCENT.sub("%25", address), safe=_SAFE_IN_TARGET)
    return encoded.replace("&", "&amp;")


def literal(text: str) -> str:
    """Return Markdown that shows exactly `text`: all punctuation as entities, which no parser takes for structure."""
    return _PUNCTUATION.sub(lambda found: f"&#{ord(found.group())};", text)
