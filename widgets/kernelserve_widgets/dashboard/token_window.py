"""The tokens of the last half minute: how many, how far apart, how late the first ones; and its images."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from itertools import islice, pairwise
from typing import NamedTuple

from kernelserve.protocol import StepRecord
from kernelserve_widgets.history.request_life import RequestLife
from kernelserve_widgets.history.step_history import step_end

__all__ = ["BIN_S", "WINDOW_S", "TimeBin", "TokenWindow", "quantile"]

WINDOW_S = 30.0
BIN_S = 0.5
_RATE_S = 3.0
_MAX_GAPS = 512
"""Of a bin: with more, these stand for all."""
_MAX_FIRST_TOKENS = 32
_MAX_ENCODES = 128


class TimeBin(NamedTuple):
    """Half a second of the past. `age` is where it ends, in seconds before the last step's end."""

    age: float
    tokens_per_second: float
    latency: float | None
    """Median time between two tokens of one request, in seconds; None if there were none."""
    slow_latency: float | None
    """95th percentile of the same."""


class _Bin:
    """The tokens of half a second."""

    __slots__ = ("count", "gaps", "quantiles")

    def __init__(self) -> None:
        self.count = 0
        self.gaps: list[float] = []
        self.quantiles: tuple[float | None, float | None] | None = None
        """Of the gaps: median and 95th percentile, once they were asked for."""

    def add_gap(self, seconds: float) -> None:
        if len(self.gaps) < _MAX_GAPS:
            self.gaps.append(seconds)
            self.quantiles = None

    def latencies(self) -> tuple[float | None, float | None]:
        if self.quantiles is None:
            self.quantiles = quantile(self.gaps, 0.5), quantile(self.gaps, 0.95)
        return self.quantiles


class TokenWindow:
    """Collects when tokens came. Times are seconds of the engine's clock; memory is bounded.

    `add` must see the lives after the history has taken in the records. Bins begin at whole halves of a second of the
    clock, so that those of the past do not change while time goes on.
    """

    def __init__(self) -> None:
        self.num_tokens = 0
        """All that were counted so far."""
        self._bins: dict[int, _Bin] = {}
        self._counts: deque[tuple[float, int]] = deque()
        """Tokens of each step of the last three seconds."""
        self._first_tokens: deque[tuple[float, float]] = deque(maxlen=_MAX_FIRST_TOKENS)
        self._encodes: deque[tuple[float, float]] = deque(maxlen=_MAX_ENCODES)
        """End of a step that encoded images, and how long that took."""
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
            if record.encoder_inputs:
                self._encodes.append((step_end(record), record.encode_time))
        counts: dict[float, int] = {}
        for request_id in ids:
            if (life := requests.get(request_id)) is not None:
                self._add_life(life, counts)
        for time, count in sorted(counts.items()):
            self._bin_at(time).count += count
            self._counts.append((time, count))
            self.num_tokens += count
        self._end = now
        self._forget(requests)

    @property
    def throughput(self) -> float:
        """Tokens a second over the last three seconds, or since the first record if that is less."""
        num_tokens = sum(count for _, count in self._counts)
        span = min(_RATE_S, self._end - self._begin)
        return num_tokens / span if num_tokens and span > 0 else 0.0

    @property
    def first_token_latencies(self) -> list[float]:
        """Seconds from the queue to the first token, of the last requests that got one."""
        return [latency for _, latency in self._first_tokens]

    def first_tokens(self) -> list[tuple[float, float]]:
        """Return (age, seconds to the first token) of those in the window."""
        return self._in_window(self._first_tokens)

    def encodes(self) -> list[tuple[float, float]]:
        """Return (age, seconds of encoding) of the steps in the window that encoded images."""
        return self._in_window(self._encodes)

    def inter_token_latency(self, share: float) -> float | None:
        """Return a quantile of the gaps between tokens of the last three seconds that had any, None if none had."""
        with_gaps = [index for index, one in self._bins.items() if one.gaps]
        since = max(with_gaps, default=0) - _RATE_S / BIN_S
        recent = [self._bins[index].gaps for index in with_gaps if index > since]
        return quantile([gap for gaps in recent for gap in gaps], share)

    def bins(self) -> list[TimeBin]:
        """Return the window in halves of a second, oldest first. The last one may be cut short by the end."""
        if self._begin == math.inf:
            return []
        first = max(self._first_index(), math.floor(self._begin / BIN_S))
        nothing = _Bin()
        result = []
        for index in range(first, math.ceil(self._end / BIN_S)):
            one = self._bins.get(index, nothing)
            end = min((index + 1) * BIN_S, self._end)
            seconds = max(end - index * BIN_S, BIN_S / 2)
            result.append(TimeBin(self._end - end, one.count / seconds, *one.latencies()))
        return result

    def _in_window(self, pairs: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
        ages = [(self._end - time, value) for time, value in pairs]
        return [pair for pair in ages if pair[0] <= WINDOW_S]

    def _first_index(self) -> int:
        return math.floor((self._end - WINDOW_S) / BIN_S) + 1

    def _bin_at(self, time: float) -> _Bin:
        index = math.ceil(time / BIN_S) - 1  # one that ends with the last step has an end
        found = self._bins.get(index)
        if found is None:
            found = self._bins[index] = _Bin()
        return found

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
        for early, late in pairwise(times):
            self._bin_at(late).add_gap(late - early)
        knows_queue = bool(life.spans) and life.spans[0].kind == "queued"
        if seen == 0 and knows_queue and life.first_token_at is not None:
            self._first_tokens.append((life.first_token_at, life.first_token_at - life.queued_at))

    def _forget(self, requests: dict[str, RequestLife]) -> None:
        while self._counts and self._counts[0][0] <= self._end - _RATE_S:
            self._counts.popleft()
        first = self._first_index()
        for index in [index for index in self._bins if index < first]:
            del self._bins[index]
        if len(self._seen) > 2 * len(requests) + 64:
            self._seen = {key: count for key, count in self._seen.items() if key in requests}


def quantile(values: list[float], share: float) -> float | None:
    """Return the nearest-rank quantile, None of nothing."""
    if not values:
        return None
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)]
