"""Checks the files of a model folder before anything is loaded, and tells how large its weights are."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelserve.errors import ModelFilesError

__all__ = ["read_json", "weight_bytes", "weight_files"]

_SINGLE = ("model.safetensors", "pytorch_model.bin")
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_MAX_HEADER_BYTES = 1 << 28


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in `path`. Raises ModelFilesError if it is missing or damaged."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ModelFilesError(f"{path.parent} has no {path.name}") from None
    except (OSError, ValueError) as error:
        raise ModelFilesError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelFilesError(f"{path} does not hold a JSON object")
    return content


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files of a model folder, each of them present.

    Raises ModelFilesError naming the file that is missing.
    """
    for name in _SINGLE:
        if (folder / name).is_file():
            return [folder / name]
    for name in _INDEXES:
        if (folder / name).is_file():
            shards = sorted(set(read_json(folder / name).get("weight_map", {}).values()))
            missing = [shard for shard in shards if not (folder / shard).is_file()]
            if missing:
                raise ModelFilesError(
                    f"{folder} lacks {len(missing)} of its {len(shards)} weight files, "
                    f"such as {missing[0]}"
                )
            return [folder / shard for shard in shards]
    raise ModelFilesError(f"{folder} has no weights: neither {_SINGLE[0]} nor {_INDEXES[0]}")


def weight_bytes(files: list[Path], bytes_per_element: int) -> int:
    """Return what the weights take in memory when floats have this size.

    Raises ModelFilesError naming a safetensors file that is cut off or damaged.
    """
    total = 0
    for path in files:
        if path.suffix != ".safetensors":
            total += path.stat().st_size
            continue
        for info in _tensors(path):
            begin, end = info["data_offsets"]
            is_float = str(info["dtype"]).startswith(("F", "BF"))
            elements = math.prod(info["shape"])
            total += elements * bytes_per_element if is_float else end - begin
    return total


def _tensors(path: Path) -> Iterator[dict[str, Any]]:
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (header_bytes,) = struct.unpack("<Q", file.read(8))
            if header_bytes > min(size, _MAX_HEADER_BYTES):
                raise ValueError("its header is longer than the file")
            header = json.loads(file.read(header_bytes))
        header.pop("__metadata__", None)
        end = max((info["data_offsets"][1] for info in header.values()), default=0)
    except (OSError, ValueError, struct.error, AttributeError, KeyError, TypeError) as error:
        raise ModelFilesError(f"{path} is damaged: {error}") from error
    if size < 8 + header_bytes + end:
        raise ModelFilesError(
            f"{path} is cut off: {size} bytes of {8 + header_bytes + end}. Fetch it again"
        )
    yield from header.values()
