"""The colours of the dashboard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernelserve.errors import InvalidConfigError

__all__ = ["THEMES", "Colour", "Theme", "ThemeName", "theme_of"]

Colour = str
"""`#rrggbb`"""
ThemeName = Literal["light", "dark"]


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours as `#rrggbb`. Those of requests come from RequestNames and are the same in every theme."""

    background: Colour
    panel: Colour
    text: Colour
    muted: Colour
    grid: Colour
    prefill: Colour
    decode: Colour
    alarm: Colour
    """Preemptions, and requests that wait for blocks."""
    waiting: Colour
    """Requests that wait for budget or a seat."""
    accent: Colour
    free_block: Colour
    cached_block: Colour
    shared_block: Colour
    shared_hatch: Colour


THEMES: dict[str, Theme] = {
    "light": Theme(
        background="#fcfcfd",
        panel="#f1f3f7",
        text="#1c2430",
        muted="#697386",
        grid="#e3e7ee",
        prefill="#5b7db8",
        decode="#e8a33d",
        alarm="#c8322b",
        waiting="#b59ad6",
        accent="#2f8f6b",
        free_block="#e9ecf2",
        cached_block="#b7c0cf",
        shared_block="#1c2430",
        shared_hatch="#8d97a8",
    ),
    "dark": Theme(
        background="#171b22",
        panel="#222831",
        text="#e6eaf0",
        muted="#95a0b2",
        grid="#2e3641",
        prefill="#6d93d6",
        decode="#f0b252",
        alarm="#f0665e",
        waiting="#a78bd0",
        accent="#4fc296",
        free_block="#262d37",
        cached_block="#55606f",
        shared_block="#f3f5f8",
        shared_hatch="#8b95a5",
    ),
}


def theme_of(name: str) -> Theme:
    """Return a theme by its name. Raises InvalidConfigError if there is none."""
    if name not in THEMES:
        raise InvalidConfigError(f"theme={name!r} is not one of {', '.join(THEMES)}")
    return THEMES[name]
