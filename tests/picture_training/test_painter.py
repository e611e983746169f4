"""What is painted is what the scene says, and the same again for the same seed."""

from __future__ import annotations

from pathlib import Path
from random import Random

import matplotlib
import numpy as np
import pytest

from kernelserve.picture_training.painter import Painter
from kernelserve.picture_training.picture_stream import SIDE, PictureStream, pixels_of
from kernelserve.picture_training.scene import DIGIT_WORDS, SHAPES, Scene, Thing, random_scene


@pytest.fixture(scope="module")
def painter():
    return Painter(SIDE, Path(matplotlib.get_data_path()) / "fonts/ttf")


def test_a_seed_decides_the_picture(painter):
    first, again = (painter.paint(random_scene(Random(3)), Random(4)) for _ in range(2))
    assert first.size == (SIDE, SIDE)
    assert np.array_equal(np.asarray(first), np.asarray(again))
    assert not np.array_equal(
        np.asarray(first), np.asarray(painter.paint(random_scene(Random(3)), Random(5)))
    )


@pytest.mark.parametrize("name", [*SHAPES, *DIGIT_WORDS])
def test_a_thing_is_painted_in_its_colour_where_it_belongs(painter, name):
    scene = Scene("white", (Thing(name, "blue", 0.3, 0.6, 0.4),))
    for seed in range(6):
        pixels = np.asarray(painter.paint(scene, Random(seed))).astype(int)
        bluish = pixels[..., 2] - pixels[..., 0] > 60
        rows, columns = np.nonzero(bluish)
        assert bluish.sum() > 60
        assert abs(rows.mean() / SIDE - 0.6) < 0.12
        assert abs(columns.mean() / SIDE - 0.3) < 0.12


def test_a_stream_is_the_same_for_the_same_seed_and_shows_one_thing_if_told():
    (first, scenes), (again, _) = (next(iter(PictureStream(3, 7, most_things=1))) for _ in range(2))
    assert np.array_equal(first, again)
    assert all(len(scene.things) == 1 for scene in scenes)
    pixels = pixels_of(first)
    assert pixels.shape == (3, 3, SIDE, SIDE)
    assert float(pixels.min()) >= -1
    assert float(pixels.max()) <= 1
