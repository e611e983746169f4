"""What is drawn is what was recorded: the artists of a picture against the lives and records."""

from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from PIL import Image

from kernelserve_widgets.history import step_end
from kernelserve_widgets.timeline.picture_figure import PictureFigure
from kernelserve_widgets.timeline.time_axis import TimeAxis

KINDS = ("queued", "prefill", "decode", "preempted")


def bars(figure: Figure, kind: str) -> PolyCollection:
    (found,) = figure.axes[0].findobj(lambda artist: artist.get_gid() == f"bars/{kind}")
    assert isinstance(found, PolyCollection)
    return found


def boxes(figure: Figure, kind: str) -> list[tuple[float, float, int]]:
    """Left, right and row of each bar."""
    paths = [path.get_extents() for path in bars(figure, kind).get_paths()]
    return [(box.x0, box.x1, round((box.y0 + box.y1) / 2)) for box in paths]


def make_axis(timeline) -> TimeAxis:
    records = list(timeline.history.records)
    begin = min(life.queued_at for life in timeline.history.requests.values())
    return TimeAxis(records, min(begin, records[0].timestamp))


def pixels(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png)).convert("RGB")


def test_bars_are_the_spans_of_the_lives(timeline) -> None:
    axis = make_axis(timeline)
    lives = sorted(timeline.history.requests.values(), key=lambda life: life.queued_at)
    figure = timeline.plot()
    for kind in KINDS:
        expected = [
            (axis.at(span.start), axis.at(span.end), row)
            for row, life in enumerate(lives)
            for span in life.spans
            if span.kind == kind
        ]
        drawn = boxes(figure, kind)
        assert expected
        assert len(drawn) == len(expected)
        for one, other in zip(drawn, expected, strict=True):
            assert one == pytest.approx(other)


def test_colours_and_labels_are_those_of_the_names(timeline) -> None:
    names = timeline.history.names
    lives = sorted(timeline.history.requests.values(), key=lambda life: life.queued_at)
    figure = timeline.plot()
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == [
        life.label for life in lives
    ]
    faces = np.asarray(bars(figure, "prefill").get_facecolor())
    expected = [
        names.colour(life.request_id)
        for life in lives
        for span in life.spans
        if span.kind == "prefill"
    ]
    assert [tuple(face) for face in np.rint(faces[:, :3] * 255)] == expected


def test_aborted_requests_carry_a_mark(timeline, run) -> None:
    axis = make_axis(timeline)
    (marks,) = timeline.plot().axes[0].findobj(lambda artist: artist.get_gid() == "bars/aborted")
    ends = [timeline.history.requests[i].ended_at for i in run.aborted]
    assert list(marks.get_xdata()) == pytest.approx([axis.at(end) for end in ends])


def test_the_strip_has_the_tokens_of_each_step(timeline, run) -> None:
    axis = make_axis(timeline)
    strip = timeline.plot().axes[1]
    for kind in ("prefill", "decode"):
        (stairs,) = strip.findobj(lambda artist, kind=kind: artist.get_gid() == f"budget/{kind}")
        values, edges, baseline = stairs.get_data()
        for record in run.records:
            middle = axis.at((record.timestamp + step_end(record)) / 2)
            index = sum(edge <= middle for edge in edges) - 1
            below = record.num_decode_tokens if kind == "prefill" else 0
            used = getattr(record, f"num_{kind}_tokens")
            assert (values[index], baseline[index]) == (below + used, below)


def test_the_marker_is_at_the_step(timeline, run) -> None:
    axis = make_axis(timeline)
    drawing = timeline.draw(3, None, caption=True)
    for step in (3, run.records[-1].step):
        drawing.move(step)
        record = timeline.record(step)
        for span in drawing._spans:
            assert span.get_x() == pytest.approx(axis.at(record.timestamp))
            assert span.get_x() + span.get_width() == pytest.approx(axis.at(step_end(record)))
        texts = [text.get_text() for text in drawing.figure.findobj(match=_is_text)]
        assert f"step {step}" in texts
        assert timeline.describe(step) in " ".join(" ".join(texts).split())


def _is_text(artist) -> bool:
    return hasattr(artist, "get_text") and bool(artist.get_text())


def test_a_moved_picture_equals_a_new_one(timeline) -> None:
    moved = timeline.draw(2, None, caption=False)
    before = moved.png()
    moved.move(9)
    assert (
        pixels(moved.png()).tobytes()
        == pixels(timeline.draw(9, None, caption=False).png()).tobytes()
    )
    moved.move(2)
    assert moved.png() == before


def test_frames_of_a_slider_are_cheap(timeline, run) -> None:
    import time

    drawing = timeline.draw(0, None, caption=False)
    start = time.process_time()
    drawing.png()
    whole = time.process_time() - start
    start = time.process_time()
    for step in timeline.steps[:10]:
        drawing.move(step)
        drawing.png()
    assert (time.process_time() - start) / 10 < whole


def test_a_window_holds_its_steps_only(timeline, run) -> None:
    drawing = timeline.draw(10, 5, caption=False)
    assert [step for step in timeline.steps if drawing.has(step)] == [8, 9, 10, 11, 12]
    first, last = timeline.record(8), timeline.record(12)
    left, right = drawing.figure.axes[0].get_xlim()
    length = step_end(last) - first.timestamp
    assert left == pytest.approx(0, abs=0.01 * length)
    assert right == pytest.approx(length, rel=0.02)
    labels = {tick.get_text() for tick in drawing.figure.axes[0].get_yticklabels()}
    there = {
        life.label
        for life in timeline.history.requests.values()
        if life.queued_at < step_end(last) and life.ended_at > first.timestamp
    }
    assert labels == there < {life.label for life in timeline.history.requests.values()}


def test_windows_at_the_ends_are_full(timeline) -> None:
    steps = timeline.steps
    for around, expected in ((0, steps[:4]), (steps[-1], steps[-4:])):
        drawing = timeline.draw(around, 4, caption=False)
        assert [step for step in steps if drawing.has(step)] == expected
    everything = timeline.draw(0, 10_000, caption=False)
    assert all(everything.has(step) for step in steps)


def test_a_figure_shows_itself_in_a_notebook(timeline) -> None:
    figure = timeline.plot(5)
    assert isinstance(figure, PictureFigure)
    assert pixels(figure._repr_png_()).size[0] == 960


def test_pyplot_is_never_loaded() -> None:
    import subprocess
    import sys

    code = (
        "import sys\n"
        "from kernelserve_widgets.timeline import Timeline\n"
        "assert 'matplotlib' not in sys.modules and 'ipywidgets' not in sys.modules\n"
        "from tests.helpers.step_records import make_record\n"
        "Timeline([make_record(0, {'r1': 3})]).plot()\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    path = {"PYTHONPATH": ".:widgets", "PATH": "/usr/bin:/bin", "HOME": "/tmp"}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=path
    )
    assert run.stdout.strip() == "False"
