"""Step records and lives as a trace that ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelserve.protocol import StepRecord
from kernelserve_widgets.history import RequestLife, StepHistory, describe_step, step_end

__all__ = ["trace_events", "write_trace"]

_ENGINE, _REQUESTS = 1, 2
"""Process ids of the trace: the engine with its steps and counters, and the requests, one thread each."""
_STEPS = 1
_PARTS = ("schedule", "execute", "sample", "update")

Event = dict[str, Any]


def trace_events(history: StepHistory) -> list[Event]:
    """Return Chrome trace events; times are microseconds since the first thing that is known."""
    if not history.records:
        return []
    first = history.records[0].timestamp
    begin = min([first, *(life.queued_at for life in history.requests.values())])
    events: list[Event] = [*_names(history)]
    for record in history.records:
        events += _step(record, history, begin)
        events += _counters(record, begin)
    if not history.live:
        events += _counter_values(_us(history.now, begin), 0, 0, 0, 0, 0)
    for tid, life in enumerate(history.requests.values(), start=1):
        events += _life(tid, life, history.now, begin)
    return events


def write_trace(path: str | os.PathLike[str], events: list[Event]) -> Path:
    """Write a trace, whole or not at all; return where it is."""
    target = Path(path)
    trace = {"displayTimeUnit": "ms", "traceEvents": events}
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(trace, file, separators=(",", ":"))
        Path(name).chmod(0o644)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return target


def _us(time: float, begin: float) -> float:
    # Whole nanoseconds, so that what touches in time touches in the trace.
    return round((time - begin) * 1e9) / 1e3


def _slice(pid: int, tid: int, name: str, start: float, end: float, args: Event) -> Event:
    duration = max(0.0, round(end - start, 3))
    return {
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "name": name,
        "ts": start,
        "dur": duration,
        "args": args,
    }


def _names(history: StepHistory) -> Iterator[Event]:
    yield _name("process_name", _ENGINE, 0, "engine")
    yield _name("process_name", _REQUESTS, 0, "requests")
    yield _name("thread_name", _ENGINE, _STEPS, "steps")
    for tid, life in enumerate(history.requests.values(), start=1):
        yield _name("thread_name", _REQUESTS, tid, life.label)
        yield _metadata("thread_sort_index", _REQUESTS, tid, {"sort_index": tid})


def _name(kind: str, pid: int, tid: int, name: str) -> Event:
    return _metadata(kind, pid, tid, {"name": name})


def _metadata(kind: str, pid: int, tid: int, args: Event) -> Event:
    return {"ph": "M", "pid": pid, "tid": tid, "name": kind, "ts": 0, "args": args}


def _step(record: StepRecord, history: StepHistory, begin: float) -> Iterator[Event]:
    start = _us(record.timestamp, begin)
    args = {
        "plan": describe_step(record, history),
        "budget": record.token_budget,
        "tokens": {history.names.label(i): n for i, n in record.num_scheduled_tokens.items()},
    }
    end = _us(step_end(record), begin)
    yield _slice(_ENGINE, _STEPS, f"step {record.step}", start, end, args)
    time = record.timestamp
    for part in _PARTS:
        seconds: float = getattr(record, f"{part}_time")
        from_us, to_us = _us(time, begin), min(end, _us(time + seconds, begin))
        yield _slice(_ENGINE, _STEPS, part, from_us, to_us, {})
        if part == "execute" and record.encoder_inputs:
            encoded = min(to_us, _us(time + record.encode_time, begin))
            yield _slice(_ENGINE, _STEPS, "encode", from_us, encoded, _images(record))
        time += seconds


def _images(record: StepRecord) -> Event:
    embeds = sum(image.num_embeds for image in record.encoder_inputs)
    return {"images": len(record.encoder_inputs), "embeddings": embeds}


def _counters(record: StepRecord, begin: float) -> Iterator[Event]:
    yield from _counter_values(
        _us(record.timestamp, begin),
        record.num_prefill_tokens,
        record.num_decode_tokens,
        record.num_running_reqs,
        record.num_waiting_reqs,
        record.num_used_blocks,
    )
    if not record.num_waiting_reqs and record.num_running_reqs == len(record.finished_req_ids):
        yield from _counter_values(_us(step_end(record), begin), 0, 0, 0, 0, 0)


def _counter_values(
    ts: float, prefill: int, decode: int, running: int, waiting: int, used_blocks: int
) -> Iterator[Event]:
    values: dict[str, Event] = {
        "budget used": {"prefill": prefill, "decode": decode},
        "running": {"requests": running},
        "waiting": {"requests": waiting},
        "used blocks": {"blocks": used_blocks},
    }
    for name, args in values.items():
        yield {"ph": "C", "pid": _ENGINE, "tid": 0, "name": name, "ts": ts, "args": args}


def _life(tid: int, life: RequestLife, now: float, begin: float) -> Iterator[Event]:
    args = {
        "request": life.request_id,
        "prompt tokens": life.num_prompt_tokens,
        "cached tokens": life.num_cached_tokens,
        "generated tokens": life.num_generated_tokens,
    }
    if life.images:
        args |= {"images encoded": life.num_encoded_images, "images found": life.num_found_images}
    for span in life.spans:
        start, end = _us(span.start, begin), _us(min(span.end, max(now, span.start)), begin)
        yield _slice(_REQUESTS, tid, span.kind, start, end, args)
    for image in life.images:
        embeds = {"embeddings": image.num_embeds}
        if image.is_hit:
            yield _instant(tid, "image found", _us(image.start, begin)) | {"args": embeds}
        else:
            start, end = _us(image.start, begin), _us(image.end, begin)
            yield _slice(_REQUESTS, tid, "encode image", start, end, embeds)
    if life.first_token_at is not None:
        yield _instant(tid, "first token", _us(life.first_token_at, begin))
    if life.ended_at is not None:
        yield _instant(tid, life.state, _us(life.ended_at, begin))


def _instant(tid: int, name: str, ts: float) -> Event:
    return {"ph": "i", "s": "t", "pid": _REQUESTS, "tid": tid, "name": name, "ts": ts}
