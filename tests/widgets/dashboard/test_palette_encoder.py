"""What is encoded can be read back by Pillow."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from kernelserve_widgets.dashboard.palette_encoder import PaletteEncoder


def read(png: bytes) -> np.ndarray:
    image = Image.open(io.BytesIO(png))
    image.load()
    assert image.mode == "P"
    return np.asarray(image.convert("RGB"))


@given(
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    seed=st.integers(0, 1000),
)
def test_few_colours_come_back_exactly(height, width, seed):
    random = np.random.default_rng(seed)
    colours = np.array([[8 * i, 255 - 8 * i, 16 * (i % 9), 255] for i in range(30)], np.uint8)
    frame = colours[random.integers(0, len(colours), (height, width))]
    encoder = PaletteEncoder(width, height)
    encoder.learn(frame)
    assert (read(encoder.encode(frame)) == frame[..., :3]).all()


def test_a_colour_that_was_not_learned_becomes_the_nearest_one():
    frame = np.zeros((2, 2, 4), np.uint8)
    frame[0] = [200, 0, 0, 255]
    frame[1] = [0, 0, 200, 255]
    encoder = PaletteEncoder(2, 2)
    encoder.learn(frame)
    frame[0, 0] = [140, 20, 20, 255]
    assert [tuple(pixel) for pixel in read(encoder.encode(frame)).reshape(-1, 3)] == [
        (200, 0, 0), (200, 0, 0), (0, 0, 200), (0, 0, 200),
    ]  # fmt: skip


def test_more_colours_than_a_palette_holds_are_approximated():
    values = np.arange(64 * 64)
    columns = [values % 256, values // 256 * 16, values * 7 % 256, values * 0 + 255]
    frame = np.stack(columns, axis=1).astype(np.uint8).reshape(64, 64, 4)
    encoder = PaletteEncoder(64, 64)
    encoder.learn(frame)
    error = np.abs(read(encoder.encode(frame)).astype(int) - frame[..., :3])
    assert error.mean() < 24


def test_another_size_is_refused():
    with pytest.raises(AssertionError, match="is not 2 x 3 RGBA"):
        PaletteEncoder(3, 2).learn(np.zeros((3, 3, 4), np.uint8))
