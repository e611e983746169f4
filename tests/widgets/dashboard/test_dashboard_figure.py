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


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))


BUDGET = rgb(LIGHT.muted)


def busy(watch):
    """A run with prefill and decode in one step, refusals and preemptions."""
    watched = watch(num_blocks=14, max_num_seqs=4, max_num_batched_tokens=16)
    for index in range(7):
        watched.engine.submit(f"r{index}", [index] * (5 + index), max_tokens=9)
    watched.run()
    return watched


def column_of(figure: DashboardFigure, steps_back: int) -> list[tuple[int, ...]]:
    """The colours of the bar of a step, from the axis to the top; 1: the last step."""
    box = figure.budget.box
    x = int(box.left + box.width) - 2 * steps_back
    pixels = figure.pixels()[int(box.top) : int(box.top + box.height), x, :3]
    return [tuple(pixel) for pixel in pixels[::-1]]


def tokens(figure: DashboardFigure, height: int) -> float:
    """What a bar of so many pixels stands for."""
    _, limit = figure.budget.axes.get_ylim()
    return (height / figure.budget.box.height) ** 2 * limit


def marked(figure: DashboardFigure, colour: str, count: int) -> list[int]:
    """The steps below which the strip has a colour, counted from the first."""
    box = figure.budget.box
    row = figure.pixels()[int(box.top + box.height) + 8, :, :3]
    columns = np.flatnonzero((row == rgb(colour)).all(axis=1)) - int(box.left)
    return sorted({int(column) // 2 - (200 - count) for column in columns})


def test_bars_are_the_tokens_of_the_records(watch):
    watched = busy(watch)
    figure = DashboardFigure(LIGHT)
    figure.draw(watched.metrics.numbers(), watched.metrics.history.names)
    records = watched.records
    both = 0
    for steps_back, record in enumerate(reversed(records), start=1):
        column = column_of(figure, steps_back)
        decode, prefill = column.count(rgb(LIGHT.decode)), column.count(rgb(LIGHT.prefill))
        budget = BUDGET in column  # it covers a pixel of a bar that is as high
        assert column[: decode + prefill] == [
            *[rgb(LIGHT.decode)] * decode,
            *[rgb(LIGHT.prefill)] * prefill,
        ]
        assert round(tokens(figure, decode)) == record.num_decode_tokens
        total = record.num_decode_tokens + record.num_prefill_tokens
        full = budget and total == record.token_budget
        assert round(tokens(figure, decode + prefill + full)) == total
        both += bool(decode and prefill)
    assert both > 0
    rows = [column_of(figure, back).index(BUDGET) for back in (1, 2, 5, 6)]  # between gaps
    assert {round(tokens(figure, row + 1)) for row in rows} == {16}


def test_preemptions_and_refusals_are_marked_at_their_steps(watch):
    watched = busy(watch)
    figure = DashboardFigure(LIGHT)
    figure.draw(watched.metrics.numbers(), watched.metrics.history.names)
    records, count = watched.records, len(watched.records)
    box = figure.budget.box
    area = figure.pixels()[int(box.top) : int(box.top + box.height), :, :3]
    alarm = (area[:, int(box.left) : int(box.left + box.width)] == rgb(LIGHT.alarm)).all(axis=2)
    tip = alarm.any(axis=1).nonzero()[0].max()  # a mark points down at the middle of its step
    tips = [int(column) // 2 - (200 - count) for column in np.flatnonzero(alarm[tip])]
    preempted = [i for i, record in enumerate(records) if record.preempted_req_ids]
    assert tips == preempted != []
    first = [(i, r.refusals[0].reason) for i, r in enumerate(records) if r.refusals]
    starves = [step for step, reason in first if reason in ("blocks", "preempted_step")]
    waits = [step for step, reason in first if reason in ("budget", "max_num_seqs")]
    assert marked(figure, LIGHT.alarm, count) == starves != []
    assert marked(figure, LIGHT.waiting, count) == waits != []


def test_the_smallest_bar_is_seen_and_labels_are_at_the_height_of_their_bars():
    numbers = DashboardNumbers(
        steps=[0], prefill=[0], decode=[1], budget=[100_000], preempted=[0], refused=[""]
    )
    figure = DashboardFigure(LIGHT)
    figure.draw(numbers, RequestNames())
    assert column_of(figure, 1).count(rgb(LIGHT.decode)) == 1
    height = column_of(figure, 1).index(BUDGET) + 1
    box = figure.budget.box
    y = figure.budget.axes.transData.transform((0, 100_000))[1]  # where matplotlib puts the label
    assert abs(FIGURE_HEIGHT - box.top - box.height + height - y) <= 0.5


def test_a_changed_budget_is_a_step_of_the_line():
    numbers = DashboardNumbers(
        steps=[0, 1, 2],
        prefill=[0] * 3,
        decode=[1] * 3,
        budget=[64, 64, 16],
        preempted=[0] * 3,
        refused=[""] * 3,
    )
    figure = DashboardFigure(LIGHT)
    figure.draw(numbers, RequestNames())
    before, last = column_of(figure, 2), column_of(figure, 1)
    assert before.count(BUDGET) == 1
    assert round(tokens(figure, before.index(BUDGET) + 1)) == 64
    assert last.count(BUDGET) == before.index(BUDGET) - last.index(BUDGET) + 1
    assert round(tokens(figure, last.index(BUDGET) + 1)) == 16


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


def test_a_scale_is_drawn_again_only_for_another_range(watch):
    watched = watch(max_num_batched_tokens=16)
    figure = DashboardFigure(LIGHT)
    names = watched.metrics.history.names
    watched.engine.submit("a", [1] * 9, max_tokens=60)
    for _ in range(8):
        figure.draw(watched.step(), names)
    before = figure.num_scales
    for _ in range(20):
        figure.draw(watched.step(), names)
    assert figure.num_scales == before
    watched.engine.scheduler.configure(max_num_batched_tokens=99)
    figure.draw(watched.step(), names)
    assert figure.num_scales == before + 1


def test_a_frame_that_follows_others_is_that_of_a_fresh_figure(watch):
    """Only what has changed is drawn: nothing of the frames before may be left."""
    watched = watch(num_blocks=14, max_num_seqs=4, max_num_batched_tokens=16)
    names = watched.metrics.history.names
    figure = DashboardFigure(LIGHT)
    for index in range(7):
        watched.engine.submit(f"r{index}", [index] * (5 + index), max_tokens=9)
        figure.draw(watched.step(4), names, watched.block_map)
    watched.engine.scheduler.configure(max_num_batched_tokens=40)
    numbers = watched.run()
    figure.draw(numbers, names, watched.block_map)
    fresh = DashboardFigure(LIGHT)
    fresh.draw(numbers, names, watched.block_map)
    difference = np.abs(figure.pixels().astype(int) - fresh.pixels())
    assert difference.max() < 16  # neighbours of a colour in the palette
    assert (difference > 0).mean() < 0.01


def test_the_map_stays_until_there_is_another(watch):
    watched = watch()
    watched.engine.submit("a", [1] * 40, max_tokens=5)
    numbers = watched.step()
    names = watched.metrics.history.names
    figure = DashboardFigure(LIGHT)
    figure.draw(numbers, names)
    empty = figure.pixels()
    figure.draw(numbers, names, watched.block_map)
    drawn = figure.pixels()
    assert (drawn != empty).any()
    figure.draw(numbers, names)
    assert (figure.pixels() == drawn).all()
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
