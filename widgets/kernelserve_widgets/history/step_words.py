"""Says in words what the scheduler decided in a step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kernelserve.protocol import Refusal, StepRecord

if TYPE_CHECKING:
    from kernelserve_widgets.history.step_history import StepHistory

__all__ = ["count_of", "describe_step", "reason_in_words", "refused_running"]

_MAX_PROMPTS = 3


def describe_step(record: StepRecord, history: StepHistory) -> str:
    """Return one line: the budget, who got what, who waits and why, who was preempted or ended.

    `history` should know the requests of the record; of others only the record's numbers are told.
    """
    label = history.names.label
    parts = [
        *_images(record, history),
        *_prompts(record, history),
        *_decodes(record, history),
        *_refusals(record, history),
        *_preemptions(record, history),
    ]
    if record.finished_req_ids:
        parts.append(f"{_names(map(label, record.finished_req_ids))} finished")
    if record.aborted_req_ids:
        were = "was" if len(record.aborted_req_ids) == 1 else "were"
        parts.append(f"{_names(map(label, record.aborted_req_ids))} {were} aborted before it")
    return f"step {record.step}: " + "; ".join([f"budget {record.token_budget:,}", *parts])


def reason_in_words(refusal: Refusal) -> str:
    """Return why a request got nothing, without its name."""
    if refusal.reason == "blocks":
        return f"needs {count_of(refusal.needed, 'block')}, {refusal.available:,} free"
    if refusal.reason == "budget":
        return "no budget left"
    if refusal.reason == "max_num_seqs":
        seats = refusal.available
        return "the only seat is taken" if seats == 1 else f"all {seats:,} seats are taken"
    if refusal.reason == "preempted_step":
        return "nobody new is admitted in a step that preempts"
    if refusal.reason == "encoder":
        needed = count_of(refusal.needed, "embedding")
        return f"its image needs {needed}, the encoder has room for {refusal.available:,}"
    return refusal.reason


def refused_running(record: StepRecord) -> set[str]:
    """Return the running requests that got nothing; every running one is either scheduled or refused."""
    number = record.num_running_reqs - len(record.num_scheduled_tokens)
    refused = [
        r.request_id for r in record.refusals if r.request_id not in record.preempted_req_ids
    ]
    return set(refused[: max(0, number)])


def count_of(number: int, noun: str) -> str:
    """Return `1 block`, `1,024 blocks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _names(labels: Iterable[str]) -> str:
    """Return `r2`, `r2 and r5`, `r2 and 3 more`."""
    first, *others = labels
    if not others:
        return first
    return f"{first} and {others[0]}" if len(others) == 1 else f"{first} and {len(others):,} more"


def _is_decode(request_id: str, num_tokens: int, record: StepRecord, history: StepHistory) -> bool:
    life = history.requests.get(request_id)
    span = life.span_at(record.step) if life else None
    if span is None:
        admitted = request_id in record.num_cached_tokens or request_id in record.new_req_ids
        return num_tokens == 1 and not admitted
    return span.kind == "decode"


def _prompts(record: StepRecord, history: StepHistory) -> list[str]:
    """Return a part for each of the first prompts, and one for all others together."""
    prompts = {
        request_id: num_tokens
        for request_id, num_tokens in record.num_scheduled_tokens.items()
        if not _is_decode(request_id, num_tokens, record, history)
    }
    parts = [
        _prompt(request_id, num_tokens, record, history)
        for request_id, num_tokens in list(prompts.items())[:_MAX_PROMPTS]
    ]
    if rest := list(prompts.values())[_MAX_PROMPTS:]:
        parts.append(f"{len(rest):,} more got {count_of(sum(rest), 'prompt token')}")
    return parts


def _prompt(request_id: str, num_tokens: int, record: StepRecord, history: StepHistory) -> str:
    life = history.requests.get(request_id)
    label = history.names.label(request_id)
    cached = record.num_cached_tokens.get(request_id, 0)
    from_cache = f", {cached:,} from the cache" if cached else ""
    if request_id in record.resumed_req_ids:
        return f"{label} resumed with {count_of(num_tokens, 'token')} to compute again{from_cache}"
    if life is not None and _recomputes(request_id, record, history):
        return f"{label} computed {count_of(num_tokens, 'token')} again"
    if life is not None and life.num_prompt_tokens:
        got = f"{num_tokens:,} of {count_of(life.num_prompt_tokens, 'prompt token')}"
    else:
        got = count_of(num_tokens, "prompt token")
    return f"{label} got {got}{from_cache}"


def _recomputes(request_id: str, record: StepRecord, history: StepHistory) -> bool:
    spans = history.requests[request_id].spans
    return any(span.kind == "preempted" and span.first_step <= record.step for span in spans)


def _images(record: StepRecord, history: StepHistory) -> list[str]:
    label = history.names.label
    encoded = [
        f"an image of {label(image.request_id)} was encoded ({count_of(image.num_embeds, 'embedding')})"
        for image in record.encoder_inputs
    ]
    found = [
        f"an image of {label(image.request_id)} was in the encoder cache"
        for image in record.encoder_hits
    ]
    return encoded + found


def _decodes(record: StepRecord, history: StepHistory) -> list[str]:
    labels = [
        history.names.label(request_id)
        for request_id, num_tokens in record.num_scheduled_tokens.items()
        if _is_decode(request_id, num_tokens, record, history)
    ]
    return [f"{_names(labels)} decoded"] if labels else []


def _refusals(record: StepRecord, history: StepHistory) -> list[str]:
    """Return who got nothing: running ones, then the first waiting one and how many are behind it."""
    label = history.names.label
    running = refused_running(record)
    parts = []
    if running:
        names = [label(r.request_id) for r in record.refusals if r.request_id in running]
        parts.append(f"{_names(names)} got nothing: no budget left")
    for refusal in record.refusals:
        if refusal.request_id in running or refusal.request_id in record.preempted_req_ids:
            continue
        behind = record.num_waiting_reqs - 1 - len(record.preempted_req_ids)
        verb = "waits" if behind == 1 else "wait"
        tail = f"; {behind:,} more {verb} behind it" if behind > 0 else ""
        parts.append(f"{label(refusal.request_id)} waits: {reason_in_words(refusal)}{tail}")
    return parts


def _preemptions(record: StepRecord, history: StepHistory) -> list[str]:
    reasons = {
        refusal.request_id: f": {reason_in_words(refusal)}"
        for refusal in record.refusals
        if refusal.reason == "blocks"
    }
    return [
        f"{history.names.label(request_id)} was preempted{reasons.get(request_id, '')}"
        for request_id in record.preempted_req_ids
    ]
