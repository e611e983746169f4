"""Whatever a caller may give as a picture that is none: damaged files, arrays, names of nothing."""

from __future__ import annotations

import io
import socket
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.helpers.pictures import bad_pictures, data_url, encode, png, random_picture

__all__ = ["bad_sources"]

_KINDS = ("GIF", "WEBP", "BMP", "TIFF", "PPM", "ICO", "JPEG2000")


def bad_sources(folder: Path) -> dict[str, Any]:
    """Return some eighty kinds; files are written to `folder`."""
    return bad_pictures() | _damaged_files() | _bad_arrays() | _names_of_nothing(folder)


def _damaged_files() -> dict[str, Any]:
    picture = random_picture(64, 64)
    good = encode(picture)
    kinds: dict[str, Any] = {
        f"{kind} cut to 1/{share}": data[: len(data) // share]
        for kind in _KINDS
        for data in [encode(picture, kind)]
        for share in (2, 10)
    }
    for name, place in (("header", 29), ("data", good.index(b"IDAT") + 20)):
        damaged = bytearray(good)
        damaged[place] ^= 0xFF
        kinds[f"wrong checksum of the {name}"] = bytes(damaged)
    closed = Image.open(io.BytesIO(good))
    closed.close()
    return kinds | {
        "unknown filter": png(8, 8, b"\x09" * 200),
        "html": b"<!doctype html><html><body>404</body></html>",
        "16 bits of one pixel": encode(Image.fromarray(np.zeros((1, 1), np.uint16))),
        "CMYK of one row": encode(Image.new("CMYK", (64, 1)), "JPEG"),
        "half a PIL image": Image.open(io.BytesIO(good[: len(good) // 2])),
        "closed PIL image": closed,
    }


def _bad_arrays() -> dict[str, Any]:
    return {
        "array of nan": np.full((16, 16, 3), np.nan),
        "array of infinity": np.full((16, 16), np.inf),
        "array of 1e30": np.full((16, 16), 1e30),
        "array of 300": np.full((16, 16), 300),
        "array below 0": np.full((16, 16), -0.5),
        "array of words": np.full((16, 16), "a"),
        "array of objects": np.zeros((16, 16), object),
        "complex array": np.zeros((16, 16), complex),
        "flat array": np.zeros(16),
        "four dimensions": np.zeros((16, 16, 3, 2)),
        "seven channels": np.zeros((16, 16, 7), np.uint8),
        "channels first": np.zeros((3, 16, 16), np.uint8),
        "no rows": np.zeros((0, 16), np.uint8),
        "one element": np.zeros((1, 1, 3), np.uint8),
    }


def _names_of_nothing(folder: Path) -> dict[str, Any]:
    text = folder / "notes.txt"
    text.write_text("no picture")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # nobody listens there once this is closed
    return {
        "missing path": folder / "missing.png",
        "missing path as text": str(folder / "missing.png"),
        "folder": folder,
        "file of text": text,
        "no such home": "~nobody-here/a.png",
        "unreachable URL": f"http://127.0.0.1:{port}/a.png",
        "URL without a host": "http://",
        "URL in pieces": "https://[bad",
        "unknown scheme": "ftp://host/a.png",
        "data URL without data": "data:image/png;base64",
        "data URL that is not base64": "data:image/png;base64,!!!!",
        "data URL of text": data_url(b"no picture"),
        "a number": 5,
        "an empty list": [],
    }
