"""Pictures in every form in which a caller may bring them, and damaged ones."""

from __future__ import annotations

import base64
import io
import random
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
from PIL import Image

__all__ = ["bad_pictures", "data_url", "encode", "png", "random_picture", "serve_bytes"]


def random_picture(
    width: int = 24, height: int = 16, seed: int = 0, mode: str = "RGB"
) -> Image.Image:
    """Return a picture of large blocks of colour, which survives JPEG well."""
    rng = np.random.default_rng(seed)
    channels = len(Image.new(mode, (1, 1)).getbands())
    blocks = rng.integers(0, 256, ((height + 7) // 8, (width + 7) // 8, channels), dtype=np.uint8)
    pixels = blocks.repeat(8, 0).repeat(8, 1)[:height, :width]
    return Image.fromarray(pixels if channels > 1 else pixels[:, :, 0])


def encode(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """Return the file of a picture."""
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def data_url(data: bytes, kind: str = "image/png") -> str:
    """Return a picture's bytes as a data URL."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def png(width: int, height: int, rows: bytes = b"", *, depth: int = 8, colour: int = 2) -> bytes:
    """Return a PNG whose header says what it likes."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + content


def bad_pictures() -> dict[str, bytes]:
    """Return some thirty kinds of bytes that are no usable picture."""
    good_png = encode(random_picture(64, 64))
    good_jpeg = encode(random_picture(64, 64), "JPEG")
    kinds = {
        "empty": b"",
        "text": b"this is no picture",
        "zeros": bytes(1000),
        "svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 100 100\nshowpage\n",
        "pdf": b"%PDF-1.4\n%%EOF",
        "one pixel": encode(Image.new("RGB", (1, 1))),
        "a line": encode(Image.new("RGB", (20000, 1))),
        "nearly a line": encode(Image.new("RGB", (20000, 8))),
        "bomb": png(60000, 60000, bytes(1000)),
        "bomb over our limit only": png(10000, 8000, bytes(1000)),
        "bomb with a warning": png(10000, 10000, bytes(1000)),
        "huge header": png(2**31 - 1, 2**31 - 1),
        "no size": png(0, 0),
        "no data": png(64, 64),
        "png signature only": good_png[:8],
        "jpeg signature only": b"\xff\xd8\xff",
        "gif signature only": b"GIF89a",
        "webp signature only": b"RIFF\x00\x00\x00\x00WEBPVP8 ",
        "bmp signature only": b"BM",
        "tiff signature only": b"II*\x00\xff\xff\xff\xff",
        "wrong depth": png(64, 64, bytes(1000), depth=13),
        "wrong colour": png(64, 64, bytes(1000), colour=5),
        "too many bytes": good_png + bytes(70 * 2**20),
    }
    for share in (3, 2):
        kinds[f"png cut to 1/{share}"] = good_png[: len(good_png) // share]
        kinds[f"jpeg cut to 1/{share}"] = good_jpeg[: len(good_jpeg) // share]
    for seed in range(8):
        noise = random.Random(seed)
        damaged = bytearray(good_png)
        for _ in range(12):
            damaged[noise.randrange(8, 33)] = noise.randrange(256)  # within the header
        kinds[f"png header fuzzed {seed}"] = bytes(damaged)
    return kinds


@contextmanager
def serve_bytes(files: dict[str, bytes | int]) -> Iterator[str]:
    """Serve files by HTTP on this machine; a number is a status. Yields the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = files.get(self.path, 404)
            self.send_response(content if isinstance(content, int) else 200)
            self.end_headers()
            if isinstance(content, bytes):
                self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            """Keep quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
