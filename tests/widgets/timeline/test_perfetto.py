"""The trace that is written is valid, nested, and says what the records say."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from kernelserve_widgets.history import describe_step, step_end
from kernelserve_widgets.timeline import Timeline
from tests.helpers.step_records import make_record

ENGINE, REQUESTS = 1, 2


@pytest.fixture
def events(timeline, tmp_path) -> list[dict[str, Any]]:
    path = timeline.to_perfetto(tmp_path / "trace.json")
    assert path == tmp_path / "trace.json"
    trace = json.loads(path.read_text())
    assert trace["displayTimeUnit"] == "ms"
    events: list[dict[str, Any]] = trace["traceEvents"]
    return events


def slices(events: list[dict[str, Any]], pid: int, tid: int | None = None) -> list[dict[str, Any]]:
    chosen = [e for e in events if e["ph"] == "X" and e["pid"] == pid]
    return chosen if tid is None else [e for e in chosen if e["tid"] == tid]


def test_tracks_have_names(events, timeline) -> None:
    names = {
        (event["name"], event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["ph"] == "M" and "name" in event["args"]
    }
    assert names["process_name", ENGINE, 0] == "engine"
    assert names["process_name", REQUESTS, 0] == "requests"
    labels = [life.label for life in timeline.history.requests.values()]
    threads = {tid: name for (kind, pid, tid), name in names.items() if pid == REQUESTS and tid}
    assert [threads[tid] for tid in sorted(threads)] == labels


def test_every_event_is_well_formed(events) -> None:
    for event in events:
        assert event["ph"] in ("M", "X", "C", "i")
        assert event["ts"] >= 0
        assert event.get("dur", 0) >= 0
        assert (event["pid"], event["ph"]) != (REQUESTS, "C")
        assert ("dur" in event) == (event["ph"] == "X")


def test_steps_hold_their_parts(events, timeline, run) -> None:
    of_engine = slices(events, ENGINE)
    assert len(of_engine) == 5 * len(run.records)
    begin = min(life.queued_at for life in timeline.history.requests.values())
    for record, index in zip(run.records, range(0, len(of_engine), 5), strict=True):
        whole, *parts = of_engine[index : index + 5]
        assert whole["name"] == f"step {record.step}"
        assert whole["ts"] == pytest.approx((record.timestamp - begin) * 1e6)
        assert whole["dur"] == pytest.approx((step_end(record) - record.timestamp) * 1e6)
        assert whole["args"]["plan"] == describe_step(record, timeline.history)
        assert sum(whole["args"]["tokens"].values()) == sum(record.num_scheduled_tokens.values())
        assert [part["name"] for part in parts] == ["schedule", "execute", "sample", "update"]
        assert parts[0]["ts"] == whole["ts"]
        for one, following in pairwise(parts):
            assert one["ts"] + one["dur"] == pytest.approx(following["ts"], abs=0.0015)
        ends = parts[-1]["ts"] + parts[-1]["dur"]
        assert ends == pytest.approx(whole["ts"] + whole["dur"], abs=0.0015)


def test_counters_are_the_records(events, run) -> None:
    starts = [e["ts"] for e in slices(events, ENGINE) if e["name"].startswith("step ")]
    counters = {(e["name"], e["ts"]): e["args"] for e in events if e["ph"] == "C"}
    for record, ts in zip(run.records, starts, strict=True):
        used = {"prefill": record.num_prefill_tokens, "decode": record.num_decode_tokens}
        assert counters["budget used", ts] == used
        assert counters["running", ts] == {"requests": record.num_running_reqs}
        assert counters["waiting", ts] == {"requests": record.num_waiting_reqs}
        assert counters["used blocks", ts] == {"blocks": record.num_used_blocks}
    last = max(ts for _, ts in counters)
    assert all(not any(args.values()) for (_, ts), args in counters.items() if ts == last)


def test_requests_have_their_spans(events, timeline) -> None:
    begin = min(life.queued_at for life in timeline.history.requests.values())
    for tid, life in enumerate(timeline.history.requests.values(), start=1):
        spans = slices(events, REQUESTS, tid)
        assert [span["name"] for span in spans] == [span.kind for span in life.spans]
        for one, following in pairwise(spans):
            assert one["ts"] + one["dur"] == pytest.approx(following["ts"], abs=0.0015)
        assert spans[0]["ts"] == pytest.approx((life.queued_at - begin) * 1e6)
        assert spans[0]["args"]["prompt tokens"] == life.num_prompt_tokens
        marks = [e["name"] for e in events if e["ph"] == "i" and e["tid"] == tid]
        first = ["first token"] if life.first_token_at is not None else []
        assert marks == [*first, life.state]


def test_gauges_rest_at_zero_in_a_pause(tmp_path) -> None:
    granted = {"r1": 4}
    timeline = Timeline(
        [
            make_record(0, granted, finished_req_ids=["r1"], num_used_blocks=3),
            make_record(1, {"r2": 4}, timestamp=50.0, finished_req_ids=["r2"], num_used_blocks=3),
        ]
    )
    path = timeline.to_perfetto(tmp_path / "trace.json")
    events = json.loads(path.read_text())["traceEvents"]
    blocks = [
        (e["ts"], e["args"]["blocks"])
        for e in events
        if e["ph"] == "C" and e["name"] == "used blocks"
    ]
    assert dict(blocks) == {0: 3, 10_000: 0, 50e6: 3, 50_010_000: 0}


def test_a_request_that_still_runs_ends_with_what_is_known(tmp_path) -> None:
    timeline = Timeline([make_record(0, {"r1": 4}, new_req_ids=["r1"])])
    path = timeline.to_perfetto(tmp_path / "trace.json")
    (span,) = slices(json.loads(path.read_text())["traceEvents"], REQUESTS)
    assert (span["name"], span["dur"]) == ("prefill", pytest.approx(10_000))


def test_a_failed_write_leaves_the_old_file(timeline, tmp_path, monkeypatch) -> None:
    target = tmp_path / "trace.json"
    target.write_text("old")

    def fail(*_args, **_options):
        raise OSError("disk full")

    monkeypatch.setattr(json, "dump", fail)
    with pytest.raises(OSError, match="disk full"):
        timeline.to_perfetto(target)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]
    assert target.read_text() == "old"


def test_an_empty_history_is_an_empty_trace(tmp_path) -> None:
    path = Timeline([]).to_perfetto(str(tmp_path / "trace.json"))
    assert json.loads(path.read_text())["traceEvents"] == []
