"""Ratios of ours to a peer's, pair by pair, and the table of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["COMPARED", "OURS", "Comparison", "compare", "render"]

OURS = "ours"
COMPARED = {
    "w1": {"decode_tok_s": "more", "ttft_ms": "less"},
    "w2": {"out_tok_s": "more", "peak_mb": "less"},
    "w3": {"out_tok_s": "more"},
    "w4": {"prompt_tok_s": "more"},
    "w5": {"cold_s": "less"},
}
"""Workload -> the figures that are compared -> which is better."""
_HEAD = ("", "figure", "better", "ours", "peer", "its", "ours / its", "lowest", "highest")
_TEXTS = ("", "figure", "better", "peer")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of one workload against one peer. A ratio is of two neighbours in the same round."""

    workload: str
    figure: str
    better: str
    peer: str
    ours: float
    theirs: float
    ratio: float
    lowest: float
    highest: float
    rounds: int

    @property
    def lead(self) -> float:
        """How many times better ours is, whichever way is better; below 1 it is worse."""
        return self.ratio if self.better == "more" else 1 / self.ratio


def compare(lines: Iterable[dict[str, Any]]) -> list[Comparison]:
    """Pair the repetitions of ours with those of each peer by workload and round. Medians over the rounds.

    A line has `bench`, `player`, `round` and figures. A round that one of a pair lacks does not count.
    """
    runs: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for line in lines:
        if "player" in line and "error" not in line:
            runs.setdefault((line["bench"], line["player"]), {})[line["round"]] = line
    return [
        _compare(workload, figure, better, player, runs[workload, OURS], theirs)
        for (workload, player), theirs in runs.items()
        if player != OURS and runs.get((workload, OURS), {}).keys() & theirs.keys()
        for figure, better in COMPARED[workload].items()
    ]


def _compare(
    workload: str,
    figure: str,
    better: str,
    peer: str,
    ours: dict[int, dict[str, Any]],
    theirs: dict[int, dict[str, Any]],
) -> Comparison:
    pairs = [
        (float(ours[number][figure]), float(theirs[number][figure]))
        for number in sorted(ours.keys() & theirs.keys())
    ]
    ratios = [mine / its for mine, its in pairs]
    return Comparison(
        workload,
        figure,
        better,
        peer,
        ours=statistics.median(mine for mine, _ in pairs),
        theirs=statistics.median(its for _, its in pairs),
        ratio=round(statistics.median(ratios), 3),
        lowest=round(min(ratios), 3),
        highest=round(max(ratios), 3),
        rounds=len(ratios),
    )


def render(lines: Sequence[dict[str, Any]]) -> str:
    """Draw the table by workload and figure, the strongest peer first and with a star; then what each player was."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for each in compare(lines):
        groups.setdefault((each.workload, each.figure), []).append(each)
    rows: list[tuple[str, ...]] = [_HEAD]
    for _, group in sorted(groups.items()):
        strongest_first = sorted(group, key=lambda each: each.lead)
        rows += [_row(each, star=each is strongest_first[0]) for each in strongest_first]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = [
        "  ".join(
            cell.ljust(width) if head in _TEXTS else cell.rjust(width)
            for cell, width, head in zip(row, widths, _HEAD, strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*table, "", *_notes(lines)])


def _notes(lines: Sequence[dict[str, Any]]) -> list[str]:
    """What each player was, what failed, and how quiet the machine was."""
    players = {line["player"]: line["what"] for line in lines if "what" in line}
    failures = {line["player"]: line["error"] for line in lines if "error" in line}
    notes = [f"{name}: {what}" for name, what in players.items()]
    notes += [f"{name} failed: {error}" for name, error in failures.items()]
    if others := [line["others_cores"] for line in lines if "others_cores" in line]:
        notes.append(
            f"all else on the machine kept {statistics.median(others):.2f} cores busy during a turn, "
            f"at most {max(others):.2f}"
        )
    return notes


def _row(each: Comparison, *, star: bool) -> tuple[str, ...]:
    return (
        each.workload,
        each.figure,
        each.better,
        _number(each.ours),
        f"{each.peer} *" if star else each.peer,
        _number(each.theirs),
        f"{each.ratio:.2f}",
        f"{each.lowest:.2f}",
        f"{each.highest:.2f}",
    )


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"
