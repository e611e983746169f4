"""The words of the dashboard as HTML, for the browser to draw: free for the kernel, sharp on every screen."""

from __future__ import annotations

from html import escape

from kernelserve_widgets.dashboard.dashboard_numbers import DashboardNumbers
from kernelserve_widgets.dashboard.panel_text import NO_REQUEST, Fact, Tile, facts, tiles
from kernelserve_widgets.dashboard.request_row import MAX_ROWS, RequestRow
from kernelserve_widgets.drawing.theme import Theme

__all__ = ["as_html"]

_FONT = "font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif"
_ROW_HEIGHT = 21


def as_html(numbers: DashboardNumbers, title: str, theme: Theme, width: int) -> str:
    """Return the upper part of the dashboard, `width` pixels wide. All text is escaped; there are no scripts."""
    blocks = [
        f'<div style="font-size:12px;color:{theme.muted};padding-bottom:8px">{escape(title)}</div>',
        '<div style="display:flex;gap:8px;padding-bottom:12px">',
        *(_tile(tile, theme) for tile in tiles(numbers)),
        '</div><div style="display:flex;gap:16px">',
        f'<div style="flex:1;min-width:0;height:{MAX_ROWS * _ROW_HEIGHT}px">',
        *(_row(row, theme) for row in numbers.rows or [NO_REQUEST]),
        '</div><div style="width:258px">',
        *(_fact(fact, theme) for fact in facts(numbers)),
        "</div></div>",
    ]
    style = (
        f"{_FONT};box-sizing:border-box;width:{width}px;padding:14px 22px 10px;line-height:1.25;"
        f"background:{theme.background};color:{theme.text};border-radius:8px 8px 0 0"
    )
    return (
        f'<div style="{style}" role="region" aria-label="engine dashboard">{"".join(blocks)}</div>'
    )


def _tile(tile: Tile, theme: Theme) -> str:
    return (
        f'<div style="flex:1;background:{theme.panel};border-radius:6px;padding:8px 10px;white-space:nowrap">'
        f'<div style="font-size:11px;color:{theme.muted}">{escape(tile.caption)}</div>'
        f'<div style="font-size:19px;font-weight:600">{escape(tile.value)}</div>'
        f'<div style="font-size:10.5px;color:{theme.muted}">{escape(tile.note)}</div></div>'
    )


def _row(row: RequestRow, theme: Theme) -> str:
    if not row.label:
        return (
            f'<div style="font-size:12px;line-height:{_ROW_HEIGHT}px;color:{theme.muted}">'
            f"{escape(row.text)}</div>"
        )
    colour = "#{:02x}{:02x}{:02x}".format(*row.colour)
    return (
        f'<div style="display:flex;gap:10px;align-items:center;font-size:12px;line-height:{_ROW_HEIGHT}px;'
        f'white-space:nowrap;overflow:hidden{";opacity:.55" if row.has_ended else ""}">'
        f'<span style="width:10px;height:10px;border-radius:3px;background:{colour};flex:none"></span>'
        f'<span style="width:78px;flex:none;font-weight:600;overflow:hidden;text-overflow:ellipsis">'
        f"{escape(row.label)}</span>"
        f'<span style="width:62px;flex:none;color:{theme.muted}">{escape(row.state)}</span>'
        f"{_bar(row, theme, colour)}"
        f'<span style="overflow:hidden;text-overflow:ellipsis">{escape(row.text)}</span></div>'
    )


def _bar(row: RequestRow, theme: Theme, colour: str) -> str:
    """Draw the cached share pale, what was computed in full colour."""
    cached, computed = (f"{100 * share:.1f}%" for share in (row.cached, row.computed))
    stops = (
        f"{colour}80 {cached},{colour} {cached},{colour} {computed},{theme.panel} {computed}"
        if row.computed
        else f"{theme.panel} 0%,{theme.panel} 100%"
    )
    return (
        '<span style="width:112px;height:8px;border-radius:4px;flex:none;'
        f'background:linear-gradient(90deg,{stops})"></span>'
    )


def _fact(fact: Fact, theme: Theme) -> str:
    line = (
        f'<div style="display:flex;font-size:12px;line-height:{_ROW_HEIGHT}px;white-space:nowrap">'
        f'<span style="color:{theme.muted};flex:1">{escape(fact.caption)}</span>'
        f"<span>{escape(fact.value)}</span></div>"
    )
    if fact.share is None:
        return line
    used, kept = (f"{100 * end:.1f}%" for end in (fact.share, fact.share + fact.kept))
    stops = f"{theme.accent} {used},{theme.cached_block} {used},{theme.cached_block} {kept},{theme.panel} {kept}"
    return line + (
        '<div style="height:5px;border-radius:3px;margin:2px 0 4px;'
        f'background:linear-gradient(90deg,{stops})"></div>'
    )
