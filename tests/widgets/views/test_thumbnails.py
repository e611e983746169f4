"""What a saved notebook keeps of the images that a model saw: small, and still the same pictures."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

import kernelserve as ks
from kernelserve_widgets.views.thumbnails import contact_sheet, encode_small, shrink


def reduced(picture: Image.Image) -> Image.Image:
    return shrink(ks.ImageReader().read(picture))


def noise(seed: int) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (600, 900, 3), dtype=np.uint8)
    return Image.fromarray(pixels[::8, ::8].repeat(8, 0).repeat(8, 1))


def opened(encoded) -> Image.Image:
    mime, data = encoded
    picture = Image.open(io.BytesIO(data))
    assert picture.get_format_mimetype() == mime
    return picture


@pytest.mark.parametrize("size", [(4000, 3000), (8, 900), (20, 10), (900, 8)])
def test_small_and_of_the_same_shape(size) -> None:
    small = reduced(Image.new("RGB", size, "red"))
    assert small.width <= 192
    assert small.height <= 96
    assert small.getpixel((0, 0)) == (255, 0, 0)
    if size == (20, 10):
        assert small.size == size, "nothing is enlarged"


def test_photos_and_drawings_stay_below_ten_kilobytes() -> None:
    drawing = Image.new("RGB", (640, 480), "white")
    drawing.paste("blue", (100, 100, 300, 300))
    mime, data = encode_small(reduced(drawing))
    assert mime == "image/png"
    assert len(data) < 1000
    mime, data = encode_small(reduced(noise(0)))
    assert mime == "image/jpeg"
    assert len(data) * 4 / 3 < 10_000


def test_a_sheet_has_all_in_order() -> None:
    colours = [(255, 0, 0), (0, 128, 0), (0, 0, 255)]
    sheet = opened(contact_sheet([reduced(Image.new("RGB", (160, 96), one)) for one in colours]))
    assert sheet.size == (3 * 160 + 2 * 6, 96)
    middles = [sheet.convert("RGB").getpixel((80 + 166 * i, 48)) for i in range(3)]
    assert middles == colours
    many = contact_sheet([reduced(noise(seed)) for seed in range(12)])
    assert opened(many).width <= 800
    assert opened(many).height == 3 * 96 + 2 * 6
    assert len(many[1]) * 4 / 3 < 12 * 10_000
