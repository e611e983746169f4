"""A model that sees: what is told of its encoder cache is what the gauges and the records say."""

from __future__ import annotations

import io
import statistics

import numpy as np
import pytest
from PIL import Image

from kernelserve_widgets.dashboard.dashboard_figure import FIGURE_HEIGHT, DashboardFigure
from kernelserve_widgets.dashboard.memory_numbers import MemoryNumbers
from kernelserve_widgets.dashboard.painter import Painter, Scene
from kernelserve_widgets.dashboard.panel_html import as_html
from kernelserve_widgets.dashboard.panel_text import as_text
from kernelserve_widgets.dashboard.still_picture import STILL_HEIGHT, still_height
from kernelserve_widgets.dashboard.units import duration
from kernelserve_widgets.drawing.theme import THEMES
from tests.helpers.scheduling import fake_image

LIGHT = THEMES["light"]
MEMORY = MemoryNumbers(270 << 20, 96 << 20, 24 << 20, 812 << 20, 143 << 20)


@pytest.fixture
def watched(watch):
    """Three requests: two images of 8 embeddings were encoded, one was found again; one is needed no more."""
    watched = watch(encoder_cache_size=40, max_num_seqs=3, long_prefill_token_threshold=6)
    for index, names in enumerate(["a", "b", "a"]):
        images = [fake_image(names, 2, 8)]
        watched.engine.submit(f"r{index}", [index] * 14, images=images, max_tokens=9)
        watched.engine.step()
    for record in watched.records:
        record.encode_time = 0.02 * len(record.encoder_inputs)
    watched.look()
    return watched


def scene(watched) -> Scene:
    numbers = watched.metrics.numbers(MEMORY)
    return Scene("t", numbers, watched.metrics.history.names, watched.block_map)


def test_gauges_are_those_of_the_stats_and_nothing_is_in_use_after_the_end(watched):
    encoder, stats = watched.metrics.numbers().encoder, watched.stats
    assert (encoder.size, encoder.used, encoder.kept) == (40, 8, 8)
    assert (encoder.used, encoder.kept) == (stats.encoder_cache_used, stats.encoder_cache_cached)
    assert (encoder.num_queries, encoder.num_hits) == (3, 1)
    numbers = watched.run()
    assert numbers.is_idle
    assert (numbers.encoder.used, numbers.encoder.kept) == (0, 16)  # kept is not in use


def test_times_and_counts_are_those_of_the_records(watched):
    numbers, records = watched.run(), watched.records
    now = watched.metrics.history.now
    encodes = [(now - r.timestamp - r.encode_time, r.encode_time) for r in records]
    expected = [pair for pair in encodes if pair[1]]
    figure = DashboardFigure(LIGHT)
    figure.draw(numbers, watched.metrics.history.names)
    ages = [(-age, seconds) for age, seconds in numbers.encoder.encodes]
    np.testing.assert_array_equal(figure.latency.encoder.get_xydata(), ages)
    assert [seconds for _, seconds in ages] == [seconds for _, seconds in expected] == [0.02, 0.02]
    lives = watched.metrics.history.requests
    for request_id, life in lives.items():
        counts = [
            sum(one.request_id == request_id for r in records for one in kind(r))
            for kind in (lambda r: r.encoder_inputs, lambda r: r.encoder_hits)
        ]
        assert [life.num_encoded_images, life.num_found_images] == counts
        assert sum(counts) == 1
    rows = {row.label: row.text.split(" · ")[-1] for row in numbers.rows}
    assert rows == {"r0": "image encoded", "r1": "image encoded", "r2": "image found"}


def test_the_words_tell_of_it(watched):
    numbers = watched.metrics.numbers(MEMORY)
    median = statistics.median(seconds for _, seconds in numbers.encoder.encodes)
    for text in (as_text(numbers, "t"), as_html(numbers, "t", LIGHT, 900)):
        for part in ("8 used · 8 kept of 40", "2 encoded · 1 found", f"{duration(median)} a step"):
            assert part in text
    bar = f"{LIGHT.accent} 20.0%,{LIGHT.cached_block} 20.0%,{LIGHT.cached_block} 40.0%"
    assert bar in as_html(numbers, "t", LIGHT, 900)
    watched.run()
    kept = as_html(watched.metrics.numbers(MEMORY), "t", LIGHT, 900)
    assert f"{LIGHT.cached_block} 0.0%,{LIGHT.cached_block} 40.0%" in kept


def test_a_picture_has_room_for_it_and_that_of_a_text_model_is_as_it_was(watched, watch):
    seeing = scene(watched)
    text = watch()
    text.engine.submit("a", [1] * 9, max_tokens=3)
    text.run()
    plain = scene(text)
    painter = Painter("light")
    for one, height in ((seeing, still_height(seeing.numbers)), (plain, STILL_HEIGHT)):
        assert Image.open(io.BytesIO(painter.still(one))).height == height
    assert still_height(seeing.numbers) > STILL_HEIGHT == still_height(plain.numbers)
    assert plain.numbers.encoder is None
    assert "ncoder" not in as_html(plain.numbers, "t", LIGHT, 900)
    legend = painter.figure.pixels()[FIGURE_HEIGHT - 20 :, 360:425]
    assert (legend == legend[0, 0]).all()  # nothing is left of the model before
    painter.frame(seeing)
    legend = painter.figure.pixels()[FIGURE_HEIGHT - 20 :, 360:425]
    assert not (legend == legend[0, 0]).all()
