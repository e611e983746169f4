"""Draws how much of the token budget each step used, and for what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.patches import StepPatch

from kernelserve.protocol import StepRecord
from kernelserve_widgets.drawing.theme import Theme
from kernelserve_widgets.history import step_end
from kernelserve_widgets.timeline.time_axis import TimeAxis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_budget"]

_INVISIBLE = 0.002
"""Gaps between steps shorter than this share of the axis would only make the strip look grey."""
_NEAR = 1.6


def draw_budget(axes: Axes, axis: TimeAxis, records: Sequence[StepRecord], theme: Theme) -> None:
    """Draw decode tokens, prefill tokens on top of them, and the budget if it is near enough to be seen."""
    edges: list[float] = []
    decode: list[float] = []
    total: list[float] = []
    budget: list[float] = []
    for record, following in zip(records, [*records[1:], None], strict=True):
        start, end = axis.at(record.timestamp), axis.at(step_end(record))
        after = axis.at(following.timestamp) if following else end
        if after - end < _INVISIBLE * axis.length:
            end = max(end, after)
        edges += [start, end]
        used = record.num_decode_tokens + record.num_prefill_tokens
        decode += [record.num_decode_tokens, 0]
        total += [used, 0]
        budget.append(record.token_budget)
    for values, below, colour, name in (
        (decode, [0.0] * len(decode), theme.decode, "decode"),
        (total, decode, theme.prefill, "prefill"),
    ):
        baseline: Any = below[:-1]  # its stubs know of one number only
        stairs = StepPatch(values[:-1], edges, baseline=baseline, fill=True, color=colour)
        stairs.set(gid=f"budget/{name}", linewidth=0, antialiased=False, label=name)
        axes.add_artist(stairs)  # axes.stairs() would look for the limits, which takes seconds
    top = max(total)
    if max(budget) <= _NEAR * top:
        axes.step(
            edges[::2], budget, where="post", color=theme.muted, linewidth=0.8, linestyle="--"
        )
        axes.annotate(
            "budget",
            (1, budget[-1]),
            xycoords=("axes fraction", "data"),
            xytext=(-2, 2),
            textcoords="offset points",
            ha="right",
            fontsize=7,
            color=theme.muted,
        )
        top = max(top, *budget)
    axes.set_ylim(0, max(1.0, top * 1.18))
