"""The small pictures above an answer."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from kernelserve_widgets.views.shown_images import NamedImage, show_images


def decoded(data) -> Image.Image:
    [(mime, text)] = [(mime, text) for mime, text in data.items() if mime.startswith("image/")]
    picture = Image.open(io.BytesIO(base64.b64decode(text)))
    assert picture.get_format_mimetype() == mime
    return picture.convert("RGB")


def test_all_that_the_model_saw_in_order_and_how_to_load_it(displays, tmp_path) -> None:
    path = tmp_path / "blue picture.png"
    Image.new("RGB", (400, 300), (0, 0, 255)).save(path)
    red = np.zeros((50, 60, 3), dtype=np.uint8)
    red[:, :, 0] = 255
    show_images([NamedImage("red", red), NamedImage(str(path), path)])
    [shown] = displays
    assert shown["data"]["text/plain"] == f"[--image red --image '{path}']"
    assert shown["metadata"] == {"kernelserve": {"images": ["red", str(path)]}}
    sheet = decoded(shown["data"])
    assert sheet.getpixel((30, 25)) == (255, 0, 0)
    assert sheet.getpixel((60 + 6 + 30, 48)) == (0, 0, 255)
    assert sum(map(len, shown["data"].values())) < 2 * 10_000


def test_what_cannot_be_read_any_more_keeps_its_name(displays, tmp_path) -> None:
    show_images([NamedImage("gone.png", tmp_path / "gone.png")])
    [shown] = displays
    assert shown["data"] == {"text/plain": "[--image gone.png]"}


def test_many_images_stay_small_and_none_show_nothing(displays) -> None:
    show_images([])
    assert displays == []
    pixels = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    show_images([NamedImage(f"p{i}", pixels) for i in range(100)])
    [shown] = displays
    assert sum(map(len, shown["data"].values())) < 24 * 10_000
    assert shown["data"]["text/plain"].endswith("--image p99]")
