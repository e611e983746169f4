"""The clock readings of one request, on two clocks that are never mixed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kernelserve.outputs import RequestMetrics
from kernelserve.protocol import EngineCoreEvent, EngineCoreEventType, PrefillStats

__all__ = ["RequestTimings"]


class RequestTimings:
    """Durations that the user feels are of the client's clock, the others of the engine's.

    Queue time ends with the first schedule, and the first token counts once, whatever
    preemptions follow.
    """

    __slots__ = (
        "_arrival_time",
        "_e2e",
        "_engine_first",
        "_engine_last",
        "_num_preemptions",
        "_prefill",
        "_queued",
        "_scheduled",
        "_start",
        "_ttft",
    )

    def __init__(self, *, arrival_time: float, now: float) -> None:
        self._arrival_time = arrival_time
        self._start = now
        self._ttft: float | None = None
        self._e2e: float | None = None
        self._queued: float | None = None
        self._scheduled: float | None = None
        self._engine_first: float | None = None
        self._engine_last: float | None = None
        self._num_preemptions = 0
        self._prefill = PrefillStats()

    def record_events(self, events: Sequence[EngineCoreEvent]) -> None:
        """Take what happened to the request inside the engine."""
        for event in events:
            if event.type is EngineCoreEventType.PREEMPTED:
                self._num_preemptions += 1
            elif event.type is EngineCoreEventType.QUEUED and self._queued is None:
                self._queued = event.timestamp
            elif event.type is EngineCoreEventType.SCHEDULED and self._scheduled is None:
                self._scheduled = event.timestamp

    def record_prefill(self, stats: PrefillStats) -> None:
        """Take what the prompt cost; the engine says it once."""
        self._prefill = stats

    def record_tokens(self, *, now: float, engine_time: float) -> None:
        """Note that tokens have come, on both clocks."""
        if self._ttft is None:
            self._ttft = now - self._start
            self._engine_first = engine_time
        self._engine_last = engine_time

    def record_end(self, now: float) -> None:
        """Note that the request has ended."""
        self._e2e = now - self._start

    def to_metrics(self, num_tokens: int) -> RequestMetrics:
        """Return a snapshot that later events do not change."""
        prefill = self._prefill
        return RequestMetrics(
            self._arrival_time,
            self._ttft,
            self._e2e,
            _between(self._queued, self._scheduled),
            _between(self._scheduled, self._engine_first),
            _between(self._engine_first, self._engine_last),
            num_tokens,
            self._num_preemptions,
            prefill.num_image_tokens,
            prefill.num_encoded_images,
            prefill.num_encoder_hits,
            prefill.encode_time if prefill.num_encoded_images else None,
        )

    @staticmethod
    def combine(all_metrics: Iterable[RequestMetrics]) -> RequestMetrics:
        """Return the metrics of a request with several answers: counts add up, but for those of the prompt."""
        every = list(all_metrics)
        return RequestMetrics(
            arrival_time=every[0].arrival_time,
            time_to_first_token=_pick(min, (m.time_to_first_token for m in every)),
            e2e_latency=_pick(max, (m.e2e_latency for m in every)),
            queued_time=_pick(min, (m.queued_time for m in every)),
            prefill_time=_pick(max, (m.prefill_time for m in every)),
            decode_time=_pick(max, (m.decode_time for m in every)),
            num_generation_tokens=sum(m.num_generation_tokens for m in every),
            num_preemptions=sum(m.num_preemptions for m in every),
            num_image_tokens=max(m.num_image_tokens for m in every),
            num_encoded_images=sum(m.num_encoded_images for m in every),
            num_encoder_hits=sum(m.num_encoder_hits for m in every),
            encode_time=_pick(max, (m.encode_time for m in every)),
        )


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start


def _pick(choose: Callable[[list[float]], float], values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return choose(known) if known else None
