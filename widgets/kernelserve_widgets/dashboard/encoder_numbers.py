"""The encoder of a model that sees, and the cache of what it has encoded."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelserve.protocol import SchedulerStats

__all__ = ["EncoderNumbers"]


@dataclass(frozen=True, slots=True)
class EncoderNumbers:
    """Sizes are embeddings, counts are images since the engine started."""

    size: int
    """What the cache holds at most."""
    used: int
    """Needed by a request."""
    kept: int
    """Needed by none, but still there."""
    num_queries: int
    num_hits: int
    """Images that were found, of those that were looked up."""
    encodes: list[tuple[float, float]] = field(default_factory=list)
    """Age and seconds of the encoding in each step of the last half minute that encoded something."""

    @classmethod
    def of(cls, stats: SchedulerStats, encodes: list[tuple[float, float]]) -> EncoderNumbers | None:
        """Return what the gauges say; None if the model takes no images."""
        if not stats.encoder_cache_size:
            return None
        return cls(
            size=stats.encoder_cache_size,
            used=stats.encoder_cache_used,
            kept=stats.encoder_cache_cached,
            num_queries=stats.encoder_cache_queries,
            num_hits=stats.encoder_cache_hits,
            encodes=encodes,
        )
