"""Turns step records into the lives of requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Literal

from kernelserve.protocol import SchedulerStats, StepRecord
from kernelserve_widgets.history.image_use import images_of
from kernelserve_widgets.history.request_life import RequestLife
from kernelserve_widgets.history.request_names import RequestNames
from kernelserve_widgets.history.step_words import reason_in_words, refused_running

__all__ = ["StepHistory", "step_end"]

_End = Literal["finished", "aborted"]


def step_end(record: StepRecord) -> float:
    """Return when a step ended, in seconds of the engine's clock."""
    return (
        record.timestamp
        + record.schedule_time
        + record.execute_time
        + record.sample_time
        + record.update_time
    )


class StepHistory:
    """Follows the records of one engine. Belongs to one thread at a time; memory is bounded.

    Records may begin anywhere, repeat, have gaps and start anew with another engine. What they do not tell is concluded
    from the counts that each record carries; a life that began before the records has only what they say.

        records  -> requests (id -> RequestLife), live ones and the last `max_ended` that ended
    """

    def __init__(self, *, max_records: int = 4096, max_ended: int = 1000) -> None:
        self.records: deque[StepRecord] = deque(maxlen=max_records)
        self.requests: dict[str, RequestLife] = {}
        self.names = RequestNames()
        self.now = 0.0
        """The latest time that is known, in seconds of the engine's clock."""
        self.last_step = -1
        """Number of the last record; ask an engine for what comes after it."""
        self._max_ended = max_ended
        self._ended: deque[str] = deque()
        self._settled: set[str] = set()
        """Ended only because the gauges said so."""
        self._running: dict[str, RequestLife] = {}
        self._waiting: dict[str, RequestLife] = {}
        self._preempted: dict[str, RequestLife] = {}
        self._head: str | None = None
        """The waiting request that was refused last; the others wait for it."""

    @property
    def live(self) -> list[RequestLife]:
        """The requests that have not ended: running ones by admission, then waiting ones, the next to run first."""
        waiting = [*reversed(self._preempted.values()), *self._waiting.values()]
        if (head := self.requests.get(self._head or "")) in waiting and head is not waiting[0]:
            waiting.remove(head)  # the priority policy has an order of its own
            waiting.insert(0, head)
        if waiting:
            behind = f"behind {waiting[0].label}"
            for life in waiting[1:]:
                life.waiting_reason = behind
        return [*self._running.values(), *waiting]

    def add(self, records: Iterable[StepRecord]) -> None:
        """Take in records, oldest first; those seen before are passed over."""
        for record in records:
            if record.step <= self.last_step and record.timestamp <= self.records[-1].timestamp:
                continue
            if self.records and (
                record.step <= self.last_step or record.timestamp < self.records[-1].timestamp
            ):
                self._start_anew()
            self._add(record)

    def settle(self, stats: SchedulerStats) -> None:
        """Close what lives on if `stats` say that nothing does: an abort needs no further step, so none tells of it.

        Read the records first and the stats after them. Stats older than the last record are ignored.
        """
        stale = 0 < stats.num_steps <= self.last_step
        if stale or stats.num_running_reqs or stats.num_waiting_reqs:
            return
        unseen = stats.num_steps > self.last_step + 1
        seemed: _End
        for life in [*self._running.values(), *self._waiting.values(), *self._preempted.values()]:
            seemed = "finished" if unseen and life.is_running else "aborted"
            self._end(life, seemed, self.now, self.last_step)
            self._settled.add(life.request_id)

    def _start_anew(self) -> None:
        """Forget the engine before: another one counts its steps from 0."""
        for lives in (self.requests, self._running, self._waiting, self._preempted):
            lives.clear()
        for ids in (self._settled, self._ended, self.records):
            ids.clear()
        self._head = None
        self.now = 0.0

    def _add(self, record: StepRecord) -> None:
        previous_end = self.now
        if record.step > self.last_step + 1:
            for life in self._running.values():
                life.is_uncertain = True
        self.now = max(self.now, step_end(record))
        self.records.append(record)
        self.last_step = record.step
        for queued in record.queued:
            life = self._create(queued.request_id, queued.timestamp)
            life.num_prompt_tokens = queued.num_prompt_tokens
            life.begin("queued", queued.timestamp, record.step)
            self._waiting[queued.request_id] = life
        for request_id in record.aborted_req_ids:
            if (aborted := self.requests.get(request_id)) is not None:
                self._end(aborted, "aborted", previous_end, record.step - 1)
        for request_id in record.preempted_req_ids:
            self._preempt(self._find(request_id, record), record)
        for request_id in (*record.new_req_ids, *record.resumed_req_ids):
            self._admit(request_id, record)
        self._grant(record)
        for request_id, image in images_of(record):
            self._find(request_id, record).add_image(image)
        for request_id in record.finished_req_ids:
            self._end(self._find(request_id, record), "finished", self.now, record.step)
        self._note_refusals(record)
        self._reconcile(record)

    def _create(self, request_id: str, queued_at: float) -> RequestLife:
        life = RequestLife(request_id, self.names.label(request_id), queued_at)
        self.requests[request_id] = life
        return life

    def _find(self, request_id: str, record: StepRecord) -> RequestLife:
        """Return the life of a request, made now if its beginning was before the records."""
        life = self.requests.get(request_id)
        if life is None:
            life = self._create(request_id, record.timestamp)
        return life

    def _admit(self, request_id: str, record: StepRecord) -> None:
        life = self._find(request_id, record)
        # Nobody told that it was preempted: a reset of the prefix cache.
        if request_id in self._running:
            self._preempt(life, record)
        self._revive(life)
        if request_id in record.resumed_req_ids and not life.num_preemptions:
            life.num_preemptions = 1
        self._waiting.pop(request_id, None)
        self._preempted.pop(request_id, None)
        self._running[request_id] = life
        life.admit(record.num_cached_tokens.get(request_id, 0), record.timestamp, record.step)

    def _preempt(self, life: RequestLife, record: StepRecord) -> None:
        self._revive(life)
        self._running.pop(life.request_id, None)
        self._waiting.pop(life.request_id, None)
        self._preempted[life.request_id] = life
        life.preempt(record.timestamp, record.step)

    def _grant(self, record: StepRecord) -> None:
        end, step, counts = self.now, record.step, record.num_scheduled_tokens
        # A prompt may be cut so that one token is left of it; only the sum tells how many single tokens are decodes.
        singles_decode = list(counts.values()).count(1) == record.num_decode_tokens
        for request_id, num_tokens in counts.items():
            is_decode = singles_decode and num_tokens == 1
            life = self._running.get(request_id)
            if life is None:
                life = self._join(request_id, is_decode, record)
            life.grant(num_tokens, is_decode, end, step)

    def _join(self, request_id: str, is_decode: bool, record: StepRecord) -> RequestLife:
        """Take a request for a running one whose admission no record told of."""
        life = self._find(request_id, record)
        self._revive(life)
        self._waiting.pop(request_id, None)
        self._preempted.pop(request_id, None)
        self._running[request_id] = life
        life.is_uncertain = True
        life.begin("decode" if is_decode else "prefill", record.timestamp, record.step)
        return life

    def _note_refusals(self, record: StepRecord) -> None:
        self._head = None
        running = refused_running(record)
        for refusal in record.refusals:
            request_id = refusal.request_id
            life = self._find(request_id, record)
            if request_id in running:
                if request_id not in self._running:
                    life = self._join(request_id, False, record)
            else:
                self._head = request_id
                if life.is_running:
                    self._preempt(life, record)
                elif life.has_ended or not life.spans:
                    self._revive(life)
                    life.begin("queued", record.timestamp, record.step)
                    self._waiting[request_id] = life
            life.waiting_reason = reason_in_words(refusal)

    def _reconcile(self, record: StepRecord) -> None:
        """Find out what happened to those that the record should name, but does not.

        A running request gets tokens, is refused or is preempted; else it went back to the queue (a reset of the prefix
        cache) or ended where no record tells of it. The number of waiting requests tells which.
        """
        named = {*record.num_scheduled_tokens, *(refusal.request_id for refusal in record.refusals)}
        lost = [life for request_id, life in self._running.items() if request_id not in named]
        room = record.num_waiting_reqs - len(self._waiting) - len(self._preempted)
        for life in reversed(lost):
            if room > 0:
                room -= 1
                self._preempt(life, record)
            else:
                self._end(life, "finished", life.last_active_at, record.step - 1)
        if room < 0:
            waiting = [*self._waiting.values(), *self._preempted.values()]
            for life in [life for life in waiting if life.request_id not in named][:-room]:
                self._end(life, "aborted", life.spans[-1].start, record.step - 1)

    def _end(self, life: RequestLife, state: _End, time: float, last_step: int) -> None:
        request_id = life.request_id
        if life.has_ended:
            if request_id in self._settled:
                self._settled.discard(request_id)
                life.state = state
            return
        for table in (self._running, self._waiting, self._preempted):
            table.pop(request_id, None)
        life.end(state, time, last_step)
        self._ended.append(request_id)
        if len(self._ended) > self._max_ended:
            oldest = self._ended.popleft()
            self._settled.discard(oldest)
            del self.requests[oldest]

    def _revive(self, life: RequestLife) -> None:
        """Take back an end that only the gauges had told of."""
        if life.has_ended:
            life.ended_at = None
            self._settled.discard(life.request_id)
            self._ended.remove(life.request_id)
