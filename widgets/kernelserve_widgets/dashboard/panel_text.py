"""What the dashboard says in words: the headline figures, memory, and the whole of it as plain text."""

from __future__ import annotations

from dataclasses import dataclass

from kernelserve_widgets.dashboard.dashboard_numbers import DashboardNumbers
from kernelserve_widgets.dashboard.encoder_numbers import EncoderNumbers
from kernelserve_widgets.dashboard.request_row import RequestRow
from kernelserve_widgets.dashboard.token_window import quantile
from kernelserve_widgets.dashboard.units import duration, memory, percent, rate

__all__ = ["Fact", "Tile", "as_text", "facts", "tiles"]


@dataclass(frozen=True, slots=True)
class Tile:
    """A headline figure."""

    caption: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class Fact:
    """A line about memory, with a share to draw as a bar if there is one."""

    caption: str
    value: str
    share: float | None = None
    kept: float = 0.0
    """Share behind it to draw paler."""


def tiles(numbers: DashboardNumbers) -> list[Tile]:
    """Return the headline figures."""
    n = numbers
    return [
        Tile(
            "Throughput", f"{rate(n.throughput)} tok/s", "last 3 s" if n.throughput else "at rest"
        ),
        Tile("First token", duration(n.first_token_latency), "median of the last 32"),
        Tile(
            "Between tokens", duration(n.token_latency), f"95 %: {duration(n.slow_token_latency)}"
        ),
        Tile("Prefix cache", percent(n.hit_rate), "of prompt tokens found"),
        Tile("Running", f"{n.num_running:,}", f"{n.num_waiting:,} waiting"),
        Tile(
            "KV cache",
            percent(n.num_used_blocks / n.num_total_blocks if n.num_total_blocks else None),
            f"{n.num_used_blocks:,} of {n.num_total_blocks:,} blocks",
        ),
    ]


def facts(numbers: DashboardNumbers) -> list[Fact]:
    """Return the lines about memory and blocks."""
    n, m = numbers, numbers.memory
    lines = [
        Fact("Blocks", f"{n.num_used_blocks:,} used"),
        Fact("", f"{n.num_cached_blocks:,} cached · {n.num_free_blocks:,} empty"),
        Fact("Preemptions", f"{n.num_preemptions:,}"),
    ]
    if m is not None:
        share = m.kv_cache_used / m.kv_cache if m.kv_cache else 0.0
        used = f"{memory(m.kv_cache_used)} of {memory(m.kv_cache)} used"
        lines = [
            Fact("KV cache", used, share),
            *lines,
            *_encoder_facts(n.encoder),
            Fact("Weights", memory(m.weights)),
            Fact("Engine process", memory(m.engine_resident)),
            Fact("This kernel", memory(m.kernel_resident)),
        ]
    return lines


def _encoder_facts(encoder: EncoderNumbers | None) -> list[Fact]:
    if encoder is None:
        return []
    e = encoder
    room = f"{e.used:,} used · {e.kept:,} kept of {e.size:,}"
    images = f"{e.num_queries - e.num_hits:,} encoded · {e.num_hits:,} found"
    lines = [Fact("Encoder cache", room, e.used / e.size, e.kept / e.size), Fact("Images", images)]
    if e.encodes:
        seconds = quantile([value for _, value in e.encodes], 0.5)
        lines.append(Fact("Encoder", f"{duration(seconds)} a step, median"))
    return lines


def as_text(numbers: DashboardNumbers, title: str) -> str:
    """Return all of it as plain text of some twenty lines."""
    lines = [title, ""]
    lines += [f"{tile.caption:16}{tile.value:>12}   {tile.note}" for tile in tiles(numbers)]
    lines += [""] + [f"{fact.caption:16}{fact.value}" for fact in facts(numbers)]
    if numbers.steps:
        lines += ["", _last_step(numbers)]
    lines += [""] + [_row(row) for row in numbers.rows or [NO_REQUEST]]
    return "\n".join(lines)


NO_REQUEST = RequestRow("", (128, 128, 128), "", "No request yet.")


def _row(row: RequestRow) -> str:
    if not row.label:
        return f"  {row.text}"
    return f"  {row.label:14}{row.state:10}{row.text}"


def _last_step(numbers: DashboardNumbers) -> str:
    decode, prefill, budget = numbers.decode[-1], numbers.prefill[-1], numbers.budget[-1]
    return (
        f"Last step {numbers.steps[-1]:,}: {decode:,} decode and {prefill:,} prefill tokens "
        f"of a budget of {budget:,}"
    )
