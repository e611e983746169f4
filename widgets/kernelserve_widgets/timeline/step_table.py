"""What each step did with each request that it names."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

from kernelserve.protocol import StepRecord
from kernelserve_widgets.history import StepHistory, reason_in_words
from kernelserve_widgets.timeline.step_row import StepRow

__all__ = ["StepTable"]

_STEP_COLUMNS = (
    "token_budget",
    "num_prefill_tokens",
    "num_decode_tokens",
    "num_running_reqs",
    "num_waiting_reqs",
    "num_used_blocks",
    "num_cached_blocks",
    "num_free_blocks",
    "schedule_time",
    "execute_time",
    "encode_time",
    "sample_time",
    "update_time",
)


class StepTable:
    """Keeps how far each request was after each step; a record itself tells only what was added.

    A step names the requests that it scheduled, then those that it preempted or refused.
    """

    def __init__(self, history: StepHistory) -> None:
        self._history = history
        self._progress: dict[int, array[int]] = {}
        """Step -> computed and generated tokens of each request that it names, in turn."""

    def add(self, record: StepRecord) -> None:
        """Remember the state after a step, when it is the last one that the history has taken in."""
        progress = array("q")
        for request_id in _named(record):
            life = self._history.requests[request_id]
            progress.extend((life.num_computed_tokens, life.num_generated_tokens))
        self._progress[record.step] = progress

    def rows(self, record: StepRecord) -> list[StepRow]:
        """Return a row for each request that the step names."""
        progress = self._progress[record.step]
        reasons: dict[str, str] = {}
        for refusal in record.refusals:
            reasons.setdefault(refusal.request_id, reason_in_words(refusal))
        rows = []
        for index, request_id in enumerate(_named(record)):
            computed, generated = progress[2 * index], progress[2 * index + 1]
            reason = reasons.get(request_id, "")
            rows.append(self._row(request_id, record, computed, generated, reason))
        return rows

    def dicts(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of all steps, each with the columns of its step."""
        records = self._history.records
        for record in records:
            step = {"step": record.step, "time": record.timestamp - records[0].timestamp}
            step |= {name: getattr(record, name) for name in _STEP_COLUMNS}
            for row in self.rows(record):
                yield step | row.as_dict()

    def _row(
        self, request_id: str, record: StepRecord, computed: int, generated: int, reason: str
    ) -> StepRow:
        history = self._history
        life = history.requests[request_id]
        span = life.span_at(record.step)
        kind = span.kind if span else "queued"
        encoded = [one for one in record.encoder_inputs if one.request_id == request_id]
        found = [one for one in record.encoder_hits if one.request_id == request_id]
        return StepRow(
            request_id=request_id,
            label=life.label,
            colour=history.names.colour(request_id),
            state="waiting" if kind == "queued" else kind,
            num_tokens=record.num_scheduled_tokens.get(request_id, 0),
            num_computed_tokens=computed,
            num_prompt_tokens=life.num_prompt_tokens,
            num_generated_tokens=generated,
            num_cached_tokens=record.num_cached_tokens.get(request_id, 0),
            finished=request_id in record.finished_req_ids,
            reason=reason,
            num_encoded_images=len(encoded),
            num_encoded_embeds=sum(one.num_embeds for one in encoded),
            num_found_images=len(found),
        )


def _named(record: StepRecord) -> list[str]:
    refused = (refusal.request_id for refusal in record.refusals)
    ids = (*record.num_scheduled_tokens, *record.preempted_req_ids, *refused)
    return list(dict.fromkeys(ids))
