"""The tokens of the last half minute: how many, how far apart, how late the first ones."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice, pairwise

from kernelserve.protocol import StepRecord
from kernelserve_widgets.history.request_life import RequestLife

__all__ = ["BIN_S", "WINDOW_S", "TimeBin", "TokenWindow", "quantile"]

WINDOW_S = 30.0
BIN_S = 0.5
_RATE_S = 3.0
_MAX_SAMPLES = 4096
_MAX_FIRST_TOKENS = 32


@dataclass(frozen=True, slots=True)
class TimeBin:
    """Half a second of the past. `age` is where it ends, in seconds before the last step's end."""

    age: float
    tokens_per_second: float
    latency: float | None
    """Median time between two tokens of one request, in seconds; None if there were none."""
    slow_latency: float | None
    """95th percentile of the same."""


class TokenWindow:
    """Collects when tokens came. Times are seconds of the engine's clock; memory is bounded.

    `add` must see the lives after the history has taken in the records.
    """

    def __init__(self) -> None:
        self.num_tokens = 0
        """All that were counted so far."""
        self._counts: deque[tuple[float, int]] = deque(maxlen=_MAX_SAMPLES)
        self._gaps: deque[tuple[float, float]] = deque(maxlen=_MAX_SAMPLES)
        self._first_tokens: deque[tuple[float, float]] = deque(maxlen=_MAX_FIRST_TOKENS)
        self._seen: dict[str, int] = {}
        self._begin = math.inf
        self._end = 0.0

    def add(
        self, records: Iterable[StepRecord], requests: dict[str, RequestLife], now: float
    ) -> None:
        """Take in what the records brought to the requests that they name; `now` is the end of the last one."""
        ids: dict[str, None] = {}
        for record in records:
            ids.update(dict.fromkeys(record.num_scheduled_tokens))
            self._begin = min(self._begin, record.timestamp)
        counts: dict[float, int] = {}
        for request_id in ids:
            if (life := requests.get(request_id)) is not None:
                self._add_life(life, counts)
        self._counts.extend(sorted(counts.items()))
        self.num_tokens += sum(counts.values())
        self._end = now
        self._forget(requests)

    @property
    def throughput(self) -> float:
        """Tokens a second over the last three seconds, or since the first record if that is less."""
        since = self._end - _RATE_S
        num_tokens = sum(count for time, count in self._counts if time > since)
        span = min(_RATE_S, self._end - self._begin)
        return num_tokens / span if num_tokens and span > 0 else 0.0

    @property
    def first_token_latencies(self) -> list[float]:
        """Seconds from the queue to the first token, of the last requests that got one."""
        return [latency for _, latency in self._first_tokens]

    def first_tokens(self) -> list[tuple[float, float]]:
        """Return (age, seconds to the first token) of those in the window."""
        ages = [(self._end - time, latency) for time, latency in self._first_tokens]
        return [pair for pair in ages if pair[0] <= WINDOW_S]

    def inter_token_latency(self, share: float) -> float | None:
        """Return a quantile of the gaps between tokens of the last three seconds that had any, None if none had."""
        if not self._gaps:
            return None
        since = self._gaps[-1][0] - _RATE_S
        return quantile([gap for time, gap in self._gaps if time > since], share)

    def bins(self) -> list[TimeBin]:
        """Return the window in halves of a second, oldest first. The last one may be cut short by the end."""
        first = math.floor((self._end - WINDOW_S) / BIN_S) + 1
        last = math.ceil(self._end / BIN_S) - 1
        first = max(first, math.floor(self._begin / BIN_S)) if self._begin < math.inf else last + 1
        counts = [0] * max(0, last - first + 1)
        gaps: list[list[float]] = [[] for _ in counts]
        for time, count in self._counts:
            if 0 <= (index := math.ceil(time / BIN_S) - 1 - first) < len(counts):
                counts[index] += count
        for time, gap in self._gaps:
            if 0 <= (index := math.ceil(time / BIN_S) - 1 - first) < len(counts):
                gaps[index].append(gap)
        result = []
        for index, (count, some) in enumerate(zip(counts, gaps, strict=True)):
            begin = (first + index) * BIN_S
            end = min(begin + BIN_S, self._end)
            seconds = max(end - begin, BIN_S / 2)
            result.append(
                TimeBin(self._end - end, count / seconds, quantile(some, 0.5), quantile(some, 0.95))
            )
        return result

    def _add_life(self, life: RequestLife, counts: dict[float, int]) -> None:
        seen = self._seen.get(life.request_id, 0)
        num_new = life.num_generated_tokens - seen
        if num_new <= 0:
            return
        self._seen[life.request_id] = life.num_generated_tokens
        times = list(islice(reversed(life.token_times), num_new + 1))[::-1]
        new = times[-num_new:]
        for time in new:
            counts[time] = counts.get(time, 0) + 1
        if num_new > len(new):  # more than a life remembers
            counts[new[0]] += num_new - len(new)
        self._gaps.extend((late, late - early) for early, late in pairwise(times))
        knows_queue = bool(life.spans) and life.spans[0].kind == "queued"
        if seen == 0 and knows_queue and life.first_token_at is not None:
            self._first_tokens.append((life.first_token_at, life.first_token_at - life.queued_at))

    def _forget(self, requests: dict[str, RequestLife]) -> None:
        if len(self._seen) > 2 * len(requests) + 64:
            self._seen = {key: count for key, count in self._seen.items() if key in requests}


def quantile(values: list[float], share: float) -> float | None:
    """Return the nearest-rank quantile, None of nothing."""
    if not values:
        return None
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)]
