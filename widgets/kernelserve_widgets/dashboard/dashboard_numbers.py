"""The numbers that one frame of the dashboard shows."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelserve_widgets.dashboard.encoder_numbers import EncoderNumbers
from kernelserve_widgets.dashboard.memory_numbers import MemoryNumbers
from kernelserve_widgets.dashboard.request_row import RequestRow
from kernelserve_widgets.dashboard.token_window import TimeBin

__all__ = ["NUM_STEPS", "DashboardNumbers"]

NUM_STEPS = 200
"""Steps that the plot of the budget shows."""


@dataclass(frozen=True, slots=True)
class DashboardNumbers:
    """Lists of steps hold one entry for each of the last 200 steps, oldest first. Times are in seconds."""

    num_running: int = 0
    num_waiting: int = 0
    num_total_blocks: int = 0
    num_used_blocks: int = 0
    num_cached_blocks: int = 0
    num_free_blocks: int = 0
    num_preemptions: int = 0
    hit_rate: float | None = None
    """Share of the looked-up prompt tokens that were in the prefix cache; None if none was looked up."""
    throughput: float = 0.0
    """Generated tokens a second; 0 at rest."""
    first_token_latency: float | None = None
    """Median of the last requests, from the queue to the first token."""
    token_latency: float | None = None
    """Median time between two tokens of a request, over the last three seconds that had any."""
    slow_token_latency: float | None = None
    """95th percentile of the same."""

    steps: list[int] = field(default_factory=list)
    prefill: list[int] = field(default_factory=list)
    decode: list[int] = field(default_factory=list)
    budget: list[int] = field(default_factory=list)
    preempted: list[int] = field(default_factory=list)
    """How many requests were preempted in each step."""
    refused: list[str] = field(default_factory=list)
    """Why somebody got nothing in each step: the first reason, empty if nobody was refused."""

    bins: list[TimeBin] = field(default_factory=list)
    first_tokens: list[tuple[float, float]] = field(default_factory=list)
    """Age and latency of the first tokens of the last half minute."""
    rows: list[RequestRow] = field(default_factory=list)
    memory: MemoryNumbers | None = None
    encoder: EncoderNumbers | None = None
    """None if the model takes no images."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits."""
        return not self.num_running and not self.num_waiting
