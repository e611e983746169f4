"""T53: an image's hash covers everything that changes its features, and nothing else."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from kernelserve.multimodal.image_hash import hash_image
from kernelserve.multimodal.image_reader import ImageReader
from tests.helpers.pictures import data_url, encode, random_picture


def key(source, model: str = "m", **options) -> str:
    return hash_image(ImageReader().read(source), model=model, options=options)


def test_t53_the_same_bytes_in_another_shape_are_another_image():
    values = np.random.default_rng(0).integers(0, 256, (30, 150, 3), dtype=np.uint8)
    assert key(values) != key(values.reshape(150, 30, 3))


def test_t53_the_same_indices_with_another_palette_are_another_image():
    first = random_picture().quantize(4)
    second = first.copy()
    palette = first.getpalette()
    assert palette
    second.putpalette(palette[::-1])
    assert first.tobytes() == second.tobytes()
    assert key(first) != key(second)


def test_t53_what_is_seen_counts():
    grey = random_picture(mode="L")
    assert key(grey) == key(grey.convert("RGB")) == key(encode(grey))
    assert key(grey) != key(random_picture())
    clear = random_picture(mode="RGBA")
    black = Image.alpha_composite(Image.new("RGBA", clear.size, (0, 0, 0, 255)), clear)
    white = Image.alpha_composite(Image.new("RGBA", clear.size, (255, 255, 255, 255)), clear)
    assert key(clear) == key(white) != key(black)


def test_t53_model_and_options_count():
    picture = random_picture()
    keys = {
        key(picture),
        key(picture, "n"),
        key(picture, size=8),
        key(picture, size=9),
        key(picture, crop=8),
    }
    assert len(keys) == 5
    assert key(picture, a=1, b={"c": 2, "d": 3}) == key(picture, b={"d": 3, "c": 2}, a=1)


def test_t53_one_pixel_counts():
    picture = random_picture(200, 200)
    other = picture.copy()
    red, green, blue = picture.getpixel((199, 199))  # type: ignore[misc]
    other.putpixel((199, 199), (red, green, blue ^ 1))
    assert key(picture) != key(other)


def test_the_same_picture_has_one_key_by_every_route():
    data = encode(random_picture())
    sources = [data, data_url(data), Image.open(io.BytesIO(data)), np.asarray(random_picture())]
    assert len({key(source) for source in sources}) == 1
    assert len(key(data)) == 64
