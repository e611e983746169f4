"""Few colours come back exactly, more of them nearly."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernelserve_widgets.dashboard.palette import Palette


def through(palette: Palette, picture: np.ndarray) -> np.ndarray:
    return palette.pixels(palette.indices(picture))


@given(height=st.integers(1, 9), width=st.integers(1, 9), seed=st.integers(0, 1000))
def test_few_colours_come_back_exactly(height, width, seed):
    random = np.random.default_rng(seed)
    colours = np.array([[8 * i, 255 - 8 * i, 16 * (i % 9), 255] for i in range(30)], np.uint8)
    picture = colours[random.integers(0, len(colours), (height, width))]
    assert (through(Palette(), picture) == picture).all()


def test_fixed_colours_have_the_first_numbers_whatever_is_learned():
    fixed = np.array([[250, 10, 10], [10, 250, 10]], np.uint8)
    palette = Palette(fixed)
    picture = np.array([[[9, 9, 9, 255], [10, 250, 10, 255], [250, 10, 10, 255]]], np.uint8)
    for _ in range(2):
        assert palette.indices(picture).tolist() == [[2, 1, 0]]
        assert palette.colours.tolist() == [[250, 10, 10], [10, 250, 10], [9, 9, 9]]
        palette.forget()
        assert palette.colours.tolist() == fixed.tolist()


def test_what_is_new_later_gets_numbers_of_its_own():
    palette = Palette()
    first = np.full((2, 2, 4), [200, 0, 0, 255], np.uint8)
    before = palette.indices(first)
    later = np.full((2, 2, 4), [0, 0, 200, 255], np.uint8)
    assert (through(palette, later) == later).all()
    assert (palette.indices(first) == before).all()


def test_more_colours_than_a_palette_holds_are_approximated():
    values = np.arange(64 * 64)
    columns = [values % 256, values // 256 * 16, values * 7 % 256, values * 0 + 255]
    picture = np.stack(columns, axis=1).astype(np.uint8).reshape(64, 64, 4)
    palette = Palette()
    error = np.abs(through(palette, picture).astype(int) - picture)[..., :3]
    assert error.mean() < 24
    assert len(palette.colours) == 255
    late = np.array([[[8, 250, 8, 255]]], np.uint8)
    near = through(palette, late)[0, 0, :3].astype(int)
    distances = np.abs(palette.colours.astype(int) - late[0, 0, :3]).sum(axis=1)
    assert np.abs(near - late[0, 0, :3]).sum() <= distances.min() + 8
