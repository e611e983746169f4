"""The static token view: each token shaded by its probability, the alternatives in its tooltip."""

from __future__ import annotations

import html

from kernelserve.outputs import CompletionOutput
from kernelserve_widgets.views.token_spans import TokenSpan, spans_of_text

__all__ = ["shade", "token_html"]

_BLOCK = (
    "white-space: pre-wrap; overflow-wrap: anywhere; padding-left: 1ch; "
    "font-family: monospace; font-size: 13px; line-height: 1.4"
)
_STRONGEST_SHADE = 0.6


def token_html(outputs: list[CompletionOutput], note: str) -> str:
    """Return HTML that survives the sanitizers of front ends: only div and span, with style and title."""
    parts = []
    for output in outputs:
        if len(outputs) > 1:
            parts.append(f'<div style="opacity: 0.65">[{output.index}]</div>')
        tokens = "".join(_token(span) for span in spans_of_text(output))
        parts.append(f'<div style="{_BLOCK}">{tokens}</div>')
    if note:
        parts.append(f'<div style="opacity: 0.65">{html.escape(note)}</div>')
    return "\n".join(parts)


def shade(probability: float) -> float:
    """Return the opacity of the shade of a token: none for a certain one, more for an improbable one."""
    return round(_STRONGEST_SHADE * (1.0 - max(0.0, min(1.0, probability))), 2)


def _token(span: TokenSpan) -> str:
    text = html.escape(span.text)
    if span.index < 0:
        return text
    opacity = shade(span.probability)
    style = f' style="background-color: rgba(230, 120, 0, {opacity})"' if opacity else ""
    return f'<span{style} title="{html.escape(_title(span))}">{text}</span>'


def _title(span: TokenSpan) -> str:
    rows = [f"{span.probability:.1%} chosen"]
    rows += [f"{other.probability:.1%} {other.text!r}" for other in span.alternatives]
    return "\n".join(rows)
