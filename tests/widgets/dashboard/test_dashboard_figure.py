"""What is drawn are the numbers, and drawing leaves matplotlib and memory as they were."""

from __future__ import annotations

import gc
import io
import tracemalloc
from collections import Counter

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from kernelserve_widgets.dashboard.dashboard_figure import (
    FIGURE_HEIGHT,
    FIGURE_WIDTH,
    DashboardFigure,
)
from kernelserve_widgets.dashboard.dashboard_numbers import DashboardNumbers
from kernelserve_widgets.dashboard.painter import Painter, Scene
from kernelserve_widgets.dashboard.still_picture import STILL_HEIGHT
from kernelserve_widgets.dashboard.token_window import TimeBin
from kernelserve_widgets.drawing.theme import THEMES
from kernelserve_widgets.history.request_names import RequestNames

LIGHT = THEMES["light"]


def busy(watch):
    """A run with prefill and decode in one step, refusals and preemptions."""
    watched = watch(num_blocks=14, max_num_seqs=4, max_num_batched_tokens=16)
    for index in range(7):
        watched.engine.submit(f"r{index}", [index] * (5 + index), max_tokens=9)
    watched.run()
    return watched


def heights(patch) -> list[tuple[float, float, float]]:
    """(left, low, high) of each bar."""
    vertices = patch.get_path().vertices
    if len(vertices) == 1:
        return []
    bars = vertices.reshape(-1, 5, 2)
    return [(bar[0, 0], bar[0, 1], bar[1, 1]) for bar in bars]


def test_bars_are_the_tokens_of_the_records(watch):
    watched = busy(watch)
    figure = DashboardFigure(LIGHT)
    figure.draw(watched.metrics.numbers(), watched.metrics.history.names)
    records = watched.records
    count = len(records)
    decode = {left: (low, high) for left, low, high in heights(figure.budget.decode)}
    prefill = {left: (low, high) for left, low, high in heights(figure.budget.prefill)}
    both = 0
    for index, record in enumerate(records):
        left = index - count
        n_decode, n_prefill = record.num_decode_tokens, record.num_prefill_tokens
        assert decode.get(left, (0, 0)) == (0, n_decode)
        assert prefill.get(left, (n_decode,) * 2) == (n_decode, n_decode + n_prefill)
        both += bool(n_decode and n_prefill)
    assert both > 0
    x, y = np.asarray(figure.budget.budget.get_xydata()).T.tolist()
    assert (x[:2], x[-2:], set(y)) == ([-count, -count + 1], [-1, 0], {16})


def test_preemptions_and_refusals_are_marked_at_their_steps(watch):
    watched = busy(watch)
    figure = DashboardFigure(LIGHT)
    figure.draw(watched.metrics.numbers(), watched.metrics.history.names)
    records, count = watched.records, len(watched.records)
    preempted = [i - count + 0.5 for i, record in enumerate(records) if record.preempted_req_ids]
    assert np.asarray(figure.budget.preempted.get_xydata())[:, 0].tolist() == preempted != []
    first = [(i - count, r.refusals[0].reason) for i, r in enumerate(records) if r.refusals]
    starves = [left for left, reason in first if reason in ("blocks", "preempted_step")]
    waits = [left for left, reason in first if reason in ("budget", "max_num_seqs")]
    assert [left for left, *_ in heights(figure.budget.starves)] == starves != []
    assert [left for left, *_ in heights(figure.budget.waits)] == waits != []


def test_lines_are_the_bins():
    bins = [
        TimeBin(1.5, 10.0, 0.02, 0.04),
        TimeBin(1.0, 0.0, None, None),
        TimeBin(0.0, 30.0, 0.01, 0.02),
    ]
    numbers = DashboardNumbers(bins=bins, first_tokens=[(0.5, 0.3)])
    figure = DashboardFigure(LIGHT)
    figure.draw(numbers, RequestNames())
    np.testing.assert_array_equal(
        figure.throughput.line.get_xydata(), [(-1.5, 10), (-1, 0), (0, 30)]
    )
    np.testing.assert_array_equal(
        figure.latency.median.get_xydata(), [(-1.5, 0.02), (-1, np.nan), (0, 0.01)]
    )
    np.testing.assert_array_equal(
        figure.latency.slow.get_xydata(), [(-1.5, 0.04), (-1, np.nan), (0, 0.02)]
    )
    np.testing.assert_array_equal(figure.latency.first.get_xydata(), [(-0.5, 0.3)])


@pytest.mark.parametrize("latency", [0.0004, 0.0021, 0.99, 1.0, 55.0])
def test_the_scale_of_latencies_holds_them(latency):
    figure = DashboardFigure(LIGHT)
    figure.draw(DashboardNumbers(bins=[TimeBin(0, 1, latency, latency)]), RequestNames())
    low, high = figure.latency.axes.get_ylim()
    assert low < latency <= high


def test_the_background_is_drawn_again_only_for_another_range(watch):
    watched = watch(max_num_batched_tokens=16)
    figure = DashboardFigure(LIGHT)
    names = watched.metrics.history.names
    watched.engine.submit("a", [1] * 9, max_tokens=60)
    for _ in range(8):
        figure.draw(watched.step(), names)
    before = figure.num_backgrounds
    for _ in range(20):
        figure.draw(watched.step(), names)
    assert figure.num_backgrounds == before
    watched.engine.scheduler.configure(max_num_batched_tokens=99)
    figure.draw(watched.step(), names)
    assert figure.num_backgrounds == before + 1


def test_the_map_stays_until_there_is_another(watch):
    watched = watch()
    watched.engine.submit("a", [1] * 40, max_tokens=5)
    numbers = watched.step()
    names = watched.metrics.history.names
    figure = DashboardFigure(LIGHT)
    empty = figure.draw(numbers, names).copy()
    drawn = figure.draw(numbers, names, watched.block_map).copy()
    assert (drawn != empty).any()
    assert (figure.draw(numbers, names) == drawn).all()
    colour = np.array(names.colour("a"), np.uint8)
    assert (drawn[..., :3] == colour).all(axis=2).any()


@pytest.mark.parametrize("theme", list(THEMES))
def test_pictures_have_their_size_and_the_colours_of_the_theme(watch, theme):
    watched = busy(watch)
    scene = Scene(
        "title", watched.metrics.numbers(), watched.metrics.history.names, watched.block_map
    )
    painter = Painter(theme)
    _, live = painter.frame(scene)
    still = painter.still(scene)
    sizes = [Image.open(io.BytesIO(png)).size for png in (live, still)]
    assert sizes == [(FIGURE_WIDTH, FIGURE_HEIGHT), (FIGURE_WIDTH, STILL_HEIGHT)]
    background = tuple(bytes.fromhex(THEMES[theme].background[1:]))
    for png in (live, still):
        image = Image.open(io.BytesIO(png)).convert("RGB")
        counts = Counter(map(tuple, np.asarray(image).reshape(-1, 3)))
        assert counts.most_common(1)[0][0] == background
    large = Painter(theme, scale=2).still(scene)
    assert Image.open(io.BytesIO(large)).size == (2 * FIGURE_WIDTH, 2 * STILL_HEIGHT)
    assert len(still) < 37_000  # 50 kB in a notebook


def test_c15_the_users_matplotlib_neither_matters_nor_changes(watch):
    watched = busy(watch)
    scene = Scene(
        "title", watched.metrics.numbers(), watched.metrics.history.names, watched.block_map
    )
    expected = Painter("light").still(scene)
    plt.figure()
    try:
        figures, backend = plt.get_fignums(), mpl.get_backend()
        with mpl.rc_context():
            mpl.rcParams.update({"font.size": 33, "text.usetex": True, "axes.facecolor": "red"})
            mpl.rcParams.update(
                {"lines.linewidth": 9, "font.family": "serif", "path.sketch": (9, 9, 9)}
            )
            mpl.rcParams.update({"lines.antialiased": False, "savefig.dpi": 7, "figure.dpi": 55})
            mine = dict(mpl.rcParams)
            for _ in range(5):
                painter = Painter("light")
                painter.frame(scene)
                assert painter.still(scene) == expected
            assert dict(mpl.rcParams) == mine
        assert plt.get_fignums() == figures
        assert mpl.get_backend() == backend
    finally:
        plt.close("all")


def test_500_frames_keep_artists_and_memory_flat(watch):
    watched = watch(max_num_batched_tokens=32)
    names = watched.metrics.history.names
    painter = Painter("light")
    count = 0

    def frames(number: int) -> None:
        nonlocal count
        for _ in range(number):
            if not watched.engine.scheduler.has_requests():
                watched.engine.submit(f"r{count}", [count % 40] * 30, max_tokens=60)
                count += 1
            painter.frame(Scene("t", watched.step(), names, watched.block_map))

    def artists() -> int:
        return sum(len(axes.get_children()) for axes in painter.figure.figure.axes) + len(
            painter.figure.figure.get_children()
        )

    frames(60)
    before = artists()
    tracemalloc.start()
    try:
        gc.collect()
        start, _ = tracemalloc.get_traced_memory()
        frames(440)
        gc.collect()
        end, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert artists() == before
    assert end - start < 1_500_000  # the records and received tokens of the test itself are in it
