"""Gets the bytes of a picture that is named by a path or a URL."""

from __future__ import annotations

import base64
import binascii
import os
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from kernelserve.errors import InvalidRequestError
from kernelserve.multimodal.image_limits import ImageLimits

__all__ = ["fetch_bytes", "read_file"]

_TIMEOUT_S = 30.0
_HEADERS = {"User-Agent": "kernelserve", "Accept": "image/*"}


def fetch_bytes(source: str, limits: ImageLimits) -> bytes:
    """Return the bytes behind an http(s), data or file URL, or of a file if `source` is no URL.

    Never reads more than the limit. Raises InvalidRequestError.
    """
    scheme = source.partition(":")[0].lower()
    if scheme == "data":
        return _decode_data_url(source, limits)
    if scheme in ("http", "https"):
        return _download(source, limits)
    if scheme == "file":
        return read_file(urllib.request.url2pathname(urllib.parse.urlsplit(source).path), limits)
    if "://" in source[:32]:
        raise InvalidRequestError(
            f"the image {source!r:.80} has an unknown scheme: http, https, data and file are known"
        )
    return read_file(source, limits)


def read_file(path: str | os.PathLike[str], limits: ImageLimits) -> bytes:
    """Return the content of a file. Raises InvalidRequestError."""
    try:
        place = Path(path).expanduser()
        if not place.is_file():
            what = "is a folder" if place.is_dir() else "does not exist"
            raise InvalidRequestError(
                f"the image file {str(path)[:200]!r} {what} (in {Path.cwd()})"
            )
        limits.check_bytes(place.stat().st_size)
        with place.open("rb") as file:
            return file.read(limits.max_bytes + 1)
    except (OSError, ValueError, RuntimeError) as error:  # ~nobody has no home
        if isinstance(error, InvalidRequestError):
            raise
        reason = getattr(error, "strerror", None) or error  # without the name, which may be endless
        raise InvalidRequestError(f"the image file {str(path)[:200]!r}: {reason}") from error


def _decode_data_url(source: str, limits: ImageLimits) -> bytes:
    header, comma, payload = source.partition(",")
    if not comma:
        raise InvalidRequestError(f"the data URL {source[:40]!r} has no comma before its data")
    # Four characters for three bytes, and as much again for characters that are escaped.
    limits.check_bytes(len(payload) * 3 // 8 if payload else 0)
    raw = urllib.parse.unquote_to_bytes(payload)
    if not header.lower().endswith(";base64"):
        return raw
    try:
        return base64.b64decode(raw + b"=" * (-len(raw) % 4), validate=True)
    except binascii.Error as error:
        raise InvalidRequestError(f"the data URL {source[:40]!r} is not base64: {error}") from error


def _download(url: str, limits: ImageLimits) -> bytes:
    try:
        request = urllib.request.Request(url, headers=_HEADERS)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            limits.check_bytes(int(response.headers.get("Content-Length") or 1))
            data: bytes = response.read(limits.max_bytes + 1)
            return data
    except InvalidRequestError:
        raise
    except urllib.error.HTTPError as error:
        error.close()
        raise InvalidRequestError(
            f"the image {url[:120]!r}: {error.code} {error.reason}"
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise InvalidRequestError(f"the image {url[:120]!r} cannot be loaded: {reason}") from error
