"""One request in one step, and a step's rows as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

__all__ = ["StepRow", "table_html", "table_text"]

_HEADINGS = ("request", "tokens", "prompt", "answer", "state")
_MAX_ROWS = 16


@dataclass(frozen=True, slots=True)
class StepRow:
    """What a step did with a request that it names. Token counts are those after the step."""

    request_id: str
    label: str
    colour: tuple[int, int, int]
    state: str
    """`prefill`, `decode`, `preempted` or `waiting`."""
    num_tokens: int
    """Granted in this step."""
    num_computed_tokens: int
    num_prompt_tokens: int
    """0: unknown, the request is older than the records."""
    num_generated_tokens: int
    num_cached_tokens: int
    """Found in the prefix cache by an admission in this step."""
    finished: bool
    reason: str
    """Why it got nothing, in words."""
    num_encoded_images: int = 0
    """Went through the encoder in this step."""
    num_encoded_embeds: int = 0
    num_found_images: int = 0
    """Needed first in this step, and found in the encoder cache."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields but the colour."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "colour"}

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the table as text."""
        prompt = f"{self.num_prompt_tokens:,}" if self.num_prompt_tokens else "?"
        if self.state != "decode" and self.num_prompt_tokens:
            done = min(self.num_computed_tokens, self.num_prompt_tokens)
            prompt = f"{done:,} / {prompt}"
        cached = f" ({self.num_cached_tokens:,} cached)" if self.num_cached_tokens else ""
        state = f"{self.state}, finished" if self.finished else self.state
        return (
            self.label,
            f"{self.num_tokens:,}" if self.num_tokens else "\N{EN DASH}",
            prompt + cached,
            f"{self.num_generated_tokens:,}",
            f"{state}: {self.reason}" if self.reason else state,
        )


def table_text(rows: Sequence[StepRow]) -> str:
    """Return the rows as lines of text."""
    lines = [_HEADINGS, *(row.cells() for row in rows[:_MAX_ROWS])]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    text = [
        "  ".join(
            cell.rjust(width) if 0 < column < 4 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join([*text, *_rest(rows)])


def table_html(rows: Sequence[StepRow]) -> str:
    """Return the rows as an HTML table; whatever comes from a caller is escaped."""
    head = "".join(f"<th{_align(i)}>{name}</th>" for i, name in enumerate(_HEADINGS))
    body = "".join(_row_html(row) for row in rows[:_MAX_ROWS])
    rest = "".join(f"<div>{line}</div>" for line in _rest(rows))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _row_html(row: StepRow) -> str:
    red, green, blue = row.colour
    dot = f'<span style="color:rgb({red},{green},{blue})">\N{BLACK CIRCLE}</span> '
    label, *others = map(escape, row.cells())
    cells = "".join(f"<td{_align(i)}>{cell}</td>" for i, cell in enumerate((dot + label, *others)))
    return f"<tr>{cells}</tr>"


def _align(column: int) -> str:
    side = "right" if 0 < column < 4 else "left"
    return f' style="text-align:{side};padding:1px 12px 1px 0"'


def _rest(rows: Sequence[StepRow]) -> list[str]:
    hidden = len(rows) - _MAX_ROWS
    return [f"and {hidden:,} more"] if hidden > 0 else []
