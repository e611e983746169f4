"""Images arrive as a viewer shows them, whichever way they come; bad ones are refused in one line."""

from __future__ import annotations

import datetime
import io
import os
import tracemalloc
import types

import numpy as np
import pytest
from PIL import Image

from kernelserve.errors import InvalidRequestError
from kernelserve.multimodal.image_limits import ImageLimits
from kernelserve.multimodal.image_pixels import ImagePixels
from kernelserve.multimodal.image_reader import ImageReader
from tests.helpers.pictures import bad_pictures, data_url, encode, random_picture, serve_bytes

READER = ImageReader()


def shown(pixels: ImagePixels) -> np.ndarray:
    return np.frombuffer(pixels.rgb, np.uint8).reshape(pixels.height, pixels.width, 3)


def routes(data: bytes, folder) -> dict[str, object]:
    """The same file by every route that takes files."""
    path = folder / "picture"
    path.write_bytes(data)
    return {
        "bytes": data,
        "bytearray": bytearray(data),
        "memoryview": memoryview(data),
        "path": path,
        "path as text": str(path),
        "file URL": path.as_uri(),
        "data URL": data_url(data),
        "upload": {"name": "x", "content": memoryview(data)},
        "old upload": {"x.png": {"content": data}},
        "value of a FileUpload": ({"name": "x", "content": memoryview(data)},),
    }


PICTURES = {
    "RGB": encode(random_picture()),
    "JPEG": encode(random_picture(), "JPEG"),
    "L": encode(random_picture(mode="L")),
    "RGBA": encode(random_picture(mode="RGBA")),
    "LA": encode(random_picture(mode="LA")),
    "1": encode(random_picture(mode="L").convert("1")),
    "P": encode(random_picture().quantize(8)),
    "P with tRNS": encode(random_picture().quantize(8), transparency=3),
    "RGB with tRNS": encode(random_picture(), transparency=random_picture().getpixel((0, 0))),
    "16 bit": encode(Image.fromarray(np.arange(0, 65536, 171).astype(np.uint16).reshape(16, 24))),
    "CMYK": encode(random_picture().convert("CMYK"), "JPEG"),
    "GIF": encode(random_picture(), "GIF"),
    "WebP": encode(random_picture(mode="RGBA"), "WEBP", lossless=True),
    "turned": encode(
        random_picture(),
        "JPEG",
        exif=bytes.fromhex("45786966000049492a00080000000100120103000100000006000000000000000000"),
    ),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_t58_every_route_gives_the_same_pixels(kind, tmp_path):
    expected = READER.read(PICTURES[kind])
    assert READER.read(Image.open(io.BytesIO(PICTURES[kind]))) == expected
    for name, source in routes(PICTURES[kind], tmp_path).items():
        assert READER.read(source) == expected, name


def test_t58_exif_orientation_is_applied():
    pixels = READER.read(PICTURES["turned"])
    assert (pixels.width, pixels.height) == (16, 24)
    upright = READER.read(PICTURES["JPEG"])
    assert np.array_equal(shown(pixels), np.rot90(shown(upright), -1))


@pytest.mark.parametrize("kind", ["RGBA", "LA", "WebP"])
def test_t58_transparency_is_over_white(kind):
    values = np.asarray(Image.open(io.BytesIO(PICTURES[kind])).convert("RGBA")).astype(float)
    alpha = values[:, :, 3:] / 255
    expected = values[:, :, :3] * alpha + 255 * (1 - alpha)
    assert np.abs(shown(READER.read(PICTURES[kind])) - expected).max() <= 1.0


def test_t58_a_transparent_colour_is_white():
    pixels = shown(READER.read(PICTURES["RGB with tRNS"]))
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert not (pixels == 255).all()
    palette = random_picture().quantize(8)
    pixels = shown(READER.read(PICTURES["P with tRNS"]))
    cut_out = np.asarray(palette) == 3
    assert cut_out.any()
    assert (pixels[cut_out] == 255).all()
    assert np.array_equal(pixels[~cut_out], np.asarray(palette.convert("RGB"))[~cut_out])


def test_t58_sixteen_bits_keep_their_brightness():
    pixels = shown(READER.read(PICTURES["16 bit"]))
    assert pixels[0, 0].tolist() == [0, 0, 0]
    assert pixels[-1, -1].tolist() == [255, 255, 255]
    assert np.diff(pixels[:, :, 0].ravel().astype(int)).min() >= 0
    assert len(np.unique(pixels)) == 256


def test_t58_cmyk_has_its_colours():
    pixels = shown(READER.read(PICTURES["CMYK"])).astype(int)
    assert np.abs(pixels - np.asarray(random_picture()).astype(int)).mean() < 12


@pytest.mark.parametrize("channels", [0, 1, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64", "int64"])
def test_arrays_are_the_picture_they_hold(channels, dtype):
    shape = (16, 24, channels) if channels else (16, 24)
    values = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    expected = READER.read(Image.fromarray(values if channels != 1 else values[:, :, 0]))
    given = values / 255 if dtype.startswith("float") else values
    assert READER.read(given.astype(dtype)) == expected


def test_array_views_and_masks_work():
    values = np.random.default_rng(0).integers(0, 256, (24, 16, 3), dtype=np.uint8)
    assert READER.read(values.transpose(1, 0, 2)) == READER.read(values.transpose(1, 0, 2).copy())
    mask = shown(READER.read(values[:, :, 0] > 100))
    assert set(np.unique(mask)) == {0, 255}


def test_tensors_have_their_channels_first():
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(0).integers(0, 256, (16, 24, 3), dtype=np.uint8)
    tensor = torch.from_numpy(values).permute(2, 0, 1)
    expected = READER.read(values)
    assert READER.read(tensor) == expected
    assert READER.read((tensor / 255).requires_grad_()) == expected
    assert READER.read((tensor[0] / 255).bfloat16()).width == 24
    with pytest.raises(InvalidRequestError, match=r"\[2, 3, 16, 24\]"):
        READER.read(torch.zeros(2, 3, 16, 24))


def test_figures_and_axes_are_drawn_without_pyplot():
    import sys

    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 2), dpi=50)
    left, right = figure.subplots(1, 2)
    left.plot([1, 2], [3, 4])
    right.bar([1, 2], [3, 4], color="red")
    whole, part = shown(READER.read(figure)), shown(READER.read(right))
    red = np.array([255, 0, 0])
    assert (whole == red).all(2).any()
    assert (part == red).all(2).any()
    assert part.shape[1] < whole.shape[1]
    assert not (shown(READER.read(left)) == red).all(2).any()
    assert READER.read(figure) == READER.read(figure)
    if "matplotlib.pyplot" not in sys.modules:
        READER.read(figure)
        assert "matplotlib.pyplot" not in sys.modules


def test_widgets_and_display_objects_work():
    import ipywidgets
    from IPython.display import Image as DisplayedImage

    data = PICTURES["RGB"]
    expected = READER.read(data)
    assert READER.read(DisplayedImage(data)) == expected
    assert READER.read(ipywidgets.Image(value=data)) == expected
    upload = ipywidgets.FileUpload()
    with pytest.raises(InvalidRequestError, match="FileUpload holds no image yet"):
        READER.read(upload)
    file = {"name": "a.png", "type": "image/png", "size": len(data), "content": data}
    upload.value = ({**file, "last_modified": datetime.datetime.now(datetime.UTC)},)
    assert READER.read(upload) == expected
    assert READER.read(upload.value) == expected
    assert READER.read(types.SimpleNamespace(_repr_png_=lambda: data)) == expected


def test_urls_are_loaded():
    data = PICTURES["JPEG"]
    with serve_bytes({"/a.jpg": data, "/large": bytes(2000), "/gone": 410}) as address:
        assert READER.read(f"{address}/a.jpg") == READER.read(data)
        with pytest.raises(InvalidRequestError, match="410"):
            READER.read(f"{address}/gone")
        with pytest.raises(InvalidRequestError, match="the limit is 1,000"):
            ImageReader(ImageLimits(max_bytes=1000)).read(f"{address}/large")
    with pytest.raises(InvalidRequestError, match="cannot be loaded"):
        READER.read(f"{address}/a.jpg")


@pytest.mark.parametrize("kind", bad_pictures())
def test_t59_a_bad_picture_is_refused_in_one_line(kind, tmp_path):
    for name, source in routes(bad_pictures()[kind], tmp_path).items():
        with pytest.raises(InvalidRequestError) as caught:
            READER.read(source)
        assert len(str(caught.value)) < 400, name
        assert "\n" not in str(caught.value)


def test_t59_a_picture_is_not_decoded_before_its_size_is_checked():
    bombs = bad_pictures()
    for kind in ("bomb over our limit only", "bomb with a warning", "bomb"):
        tracemalloc.start()
        try:
            with pytest.raises(InvalidRequestError, match="pixels"):
                READER.read(bombs[kind])
            assert tracemalloc.get_traced_memory()[1] < 5 * 2**20
        finally:
            tracemalloc.stop()


def test_t59_bad_pictures_leave_no_memory_behind():
    bad = [data for name, data in bad_pictures().items() if name != "too many bytes"]

    def read_all() -> None:
        for data in bad:
            with pytest.raises(InvalidRequestError):
                READER.read(data)

    read_all()
    tracemalloc.start()
    try:
        read_all()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(5):
            read_all()
        assert tracemalloc.get_traced_memory()[0] - before < 100_000
    finally:
        tracemalloc.stop()


def test_broken_exif_data_is_passed_over():
    exif = b"Exif\0\0II*\0\xff\xff\xff\xff" + bytes(20)
    broken = encode(random_picture(), "JPEG", exif=exif)
    assert READER.read(broken) == READER.read(PICTURES["JPEG"])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_t58_all_eight_orientations(orientation):
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(random_picture(), "PNG", exif=exif)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert READER.read(data) == READER.read(np.asarray(expected))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (None, "a NoneType is no image"),
        (5, "a int is no image"),
        ({}, "a dict with nothing"),
        ([], "0 images where one is expected"),
        ("/no/such/file.png", "does not exist"),
        (os.sep, "is a folder"),
        ("ftp://host/a.png", "unknown scheme"),
        ("data:image/png;base64", "no comma"),
        ("data:image/png;base64,!!!!", "not base64"),
        ("data:image/png;base64,", "0 bytes"),
        ("a\0b", "does not exist"),
        ("~nobody-here/a.png", "home"),
        ("https://[bad", "cannot be loaded"),
        ("http://", "no host"),
        ("x" * 100_000, "too long"),
        (np.zeros((8, 8, 7), np.uint8), r"shape \[8, 8, 7\]"),
        (np.zeros((3, 8, 8), np.uint8), "transpose"),
        (np.full((8, 8), 300), "300"),
        (np.full((8, 8), -0.5), "-0.5"),
        (np.full((8, 8), np.nan), "nan"),
        (np.zeros((8, 8), complex), "complex"),
        (np.zeros((0, 8), np.uint8), "8 by 0"),
    ],
    ids=lambda value: f"{value!r:.30}",
)
def test_what_is_no_image_is_named(source, says):
    with pytest.raises(InvalidRequestError, match=says) as caught:
        READER.read(source)
    assert len(str(caught.value)) < 500


def test_a_closed_or_damaged_pil_image_is_refused():
    picture = Image.open(io.BytesIO(bad_pictures()["png cut to 1/2"]))
    with pytest.raises(InvalidRequestError, match="damaged"):
        READER.read(picture)
