"""What is encoded can be read back by Pillow, and only what was touched is compressed again."""

from __future__ import annotations

import io
import zlib
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from kernelserve_widgets.dashboard.banded_png import BandedPng
from kernelserve_widgets.dashboard.palette import Palette


def read(png: bytes) -> np.ndarray:
    image = Image.open(io.BytesIO(png))
    image.load()
    assert image.mode == "P"
    return np.asarray(image.convert("RGB"))


def numbered(colours: np.ndarray) -> Palette:
    palette = Palette()
    palette.indices(colours[None])
    return palette


@given(height=st.integers(1, 9), width=st.integers(1, 9), seed=st.integers(0, 1000), data=st.data())
def test_any_bands_written_in_any_order_come_back(height, width, seed, data):
    random = np.random.default_rng(seed)
    colours = np.array([[8 * i, 255 - 8 * i, 16 * (i % 9), 255] for i in range(30)], np.uint8)
    palette = numbered(colours)
    cuts = data.draw(st.sets(st.integers(1, 8)).map(sorted))
    png = BandedPng(width, height, palette, cuts=[cut for cut in cuts if cut < height])
    for _ in range(3):
        top = data.draw(st.integers(0, height - 1))
        bottom = data.draw(st.integers(top + 1, height))
        png.pixels[top:bottom] = random.integers(0, 30, (bottom - top, width))
        png.touch(top, bottom)
        expected = palette.pixels(png.pixels)[..., :3]
        encoded = png.encode()
        assert (read(encoded) == expected).all()
        packed = encoded[encoded.index(b"IDAT") + 4 : -16]
        assert len(zlib.decompress(packed)) == height * (1 + width)  # fails for a wrong check sum


def test_nothing_is_made_anew_while_nothing_is_touched():
    png = BandedPng(4, 4, numbered(np.array([[1, 2, 3, 255]], np.uint8)), cuts=[2])
    first = png.encode()
    assert png.encode() is first
    png.touch(3, 4)
    assert png.encode() is not first


@pytest.mark.parametrize(("rows", "count"), [((0, 2), 1), ((3, 4), 1), ((1, 3), 2)])
def test_only_bands_that_were_touched_are_compressed_again(monkeypatch, rows, count):
    png = BandedPng(3, 4, numbered(np.array([[1, 2, 3, 255]], np.uint8)), cuts=[2])
    png.encode()
    compress = Mock(side_effect=zlib.compressobj)
    monkeypatch.setattr(zlib, "compressobj", compress)
    png.touch(*rows)
    assert read(png.encode()).shape == (4, 3, 3)
    assert compress.call_count == count
