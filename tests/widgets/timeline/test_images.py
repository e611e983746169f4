"""Images in a timeline: each was encoded or found where and when the records say."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from kernelserve.protocol import StepRecord
from kernelserve_widgets.timeline import Timeline
from kernelserve_widgets.timeline.time_axis import TimeAxis
from tests.helpers.scheduling import Engine, fake_image


@pytest.fixture(scope="module")
def seen() -> Timeline:
    """Two images encoded in one step, one in another, one found; each for a request of its own or with others."""
    engine = Engine(encoder_cache_size=40, max_num_seqs=3)
    engine.submit("two", [0] * 24, images=[fake_image("a", 2, 8), fake_image("b", 14, 8)])
    engine.step()
    engine.submit("one", [1] * 14, images=[fake_image("c", 2, 8)])
    engine.submit("again", [2] * 14, images=[fake_image("a", 2, 8)])
    engine.run()
    records = list(engine.scheduler.step_records)
    for record in records:
        record.encode_time = 0.2 if record.encoder_inputs else 0.0
        record.schedule_time, record.execute_time, record.sample_time = 0.1, 0.5, 0.1
    return Timeline(records)


def labels(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def drawn(figure: Figure, gid: str) -> Any:
    (found,) = figure.axes[0].findobj(lambda artist: artist.get_gid() == gid)
    return found


def uses(timeline: Timeline, kind: str) -> list[tuple[StepRecord, int]]:
    """Record and row of each image."""
    rows = {request_id: row for row, request_id in enumerate(timeline.history.requests)}
    return [
        (record, rows[one.request_id])
        for record in timeline.history.records
        for one in getattr(record, kind)
    ]


def test_bars_and_dots_are_the_images_of_the_records(seen):
    records, lives = list(seen.history.records), seen.history.requests.values()
    axis = TimeAxis(records, min(life.queued_at for life in lives))
    figure = seen.plot()
    paths = [path.get_extents() for path in drawn(figure, "images/encoded").get_paths()]
    bars = sorted((box.x0, box.x1, round((box.y0 + box.y1) / 2)) for box in paths)
    expected = sorted(
        (axis.at(r.timestamp + 0.1), axis.at(r.timestamp + 0.3), row)
        for r, row in uses(seen, "encoder_inputs")
    )
    np.testing.assert_allclose(bars, expected)
    assert len(bars) == 3
    dots = drawn(figure, "images/found").get_xydata()
    hits = [(axis.at(r.timestamp + 0.1), row) for r, row in uses(seen, "encoder_hits")]
    np.testing.assert_allclose(dots, hits)
    assert len(dots) == 1
    assert {"image encoded", "found"} <= set(labels(figure))


def test_text_models_are_drawn_as_before(timeline, tmp_path):
    figure = timeline.plot()
    assert not drawn(figure, "images/encoded").get_paths()
    assert not {"image encoded", "found"} & set(labels(figure))
    assert "image" not in timeline.to_perfetto(tmp_path / "trace.json").read_text()


def test_the_trace_has_slices_of_the_encoder(seen, tmp_path):
    events = json.loads(seen.to_perfetto(tmp_path / "trace.json").read_text())["traceEvents"]
    encodes = [event for event in events if event["name"] == "encode"]
    executes = [event for event in events if event["name"] == "execute"]
    encoding = [r for r in seen.history.records if r.encoder_inputs]
    assert len(encodes) == len(encoding) == 2
    for event, record in zip(encodes, encoding, strict=True):
        inside = executes[list(seen.history.records).index(record)]
        assert event["ts"] == inside["ts"]
        assert event["dur"] == pytest.approx(0.2e6)
        embeds = sum(one.num_embeds for one in record.encoder_inputs)
        assert event["args"] == {"images": len(record.encoder_inputs), "embeddings": embeds}
    of_requests = [event for event in events if event["name"] == "encode image"]
    assert [event["args"] for event in of_requests] == [{"embeddings": 8}] * 3
    prefills = {event["tid"]: event for event in events if event["name"] == "prefill"}
    for event in of_requests:
        around = prefills[event["tid"]]
        assert around["ts"] <= event["ts"]
        assert event["ts"] + event["dur"] <= around["ts"] + around["dur"]
    assert [event["ph"] for event in events if event["name"] == "image found"] == ["i"]


def test_rows_of_steps_have_their_images(seen):
    rows = seen.to_rows()
    records = seen.history.records
    assert sum(row["num_encoded_images"] for row in rows) == len(uses(seen, "encoder_inputs"))
    assert sum(row["num_encoded_embeds"] for row in rows) == 24
    assert sum(row["num_found_images"] for row in rows) == len(uses(seen, "encoder_hits"))
    times = {row["step"]: row["encode_time"] for row in rows}
    assert times == {record.step: record.encode_time for record in records}
    first = next(row for row in rows if row["label"] == "two")
    assert (first["num_encoded_images"], first["num_encoded_embeds"]) == (2, 16)
