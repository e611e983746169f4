"""Reads the structure of a GGUF file: metadata, and where each tensor lies. No tensor data."""

from __future__ import annotations

import hashlib
import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelserve.errors import ModelFilesError, UnsupportedModelError

__all__ = ["GgufFile", "GgufTensor"]

_SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 30: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24),
    8: (32, 34), 10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110),
    22: (256, 82), 23: (256, 136), 29: (256, 56),
}  # fmt: skip
"""Type of a tensor -> (numbers, bytes) of one block."""


@dataclass(slots=True, frozen=True)
class GgufTensor:
    """One tensor of the file; `shape` in torch's order."""

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    start: int
    num_bytes: int

    @property
    def num_elements(self) -> int:
        """Numbers in it."""
        return math.prod(self.shape)


class GgufFile:
    """An open, mapped .gguf file. Raises ModelFilesError if it is damaged or cut off.

    Its metadata are there but for lists of strings, which are None.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                # Copy on write: torch wants memory that it could write to.
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            self._position = 0
            self._read_header()
        except (OSError, ValueError, KeyError, struct.error, OverflowError, MemoryError) as error:
            raise ModelFilesError(f"{path} is damaged or no GGUF file: {error}") from error
        end = max((tensor.start + tensor.num_bytes for tensor in self.tensors), default=0)
        if end > len(self.data):
            raise ModelFilesError(
                f"{path} is cut off: {len(self.data)} bytes of {end}. Fetch it again"
            )

    @property
    def architecture(self) -> str:
        """Name of the architecture in llama.cpp's words."""
        return str(self.metadata.get("general.architecture", ""))

    def hyperparameter(self, name: str, default: Any = None) -> Any:
        """Return what the metadata say about the architecture under `name`."""
        return self.metadata.get(f"{self.architecture}.{name}", default)

    def header_digest(self) -> str:
        """Return a hash of everything before the tensor data: tokenizer, config and layout."""
        return hashlib.sha256(memoryview(self.data)[: self._data_start]).hexdigest()

    def _read_header(self) -> None:
        if self.data[:4] != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        self._position = 4
        (version,) = self._unpack("I")
        if version not in (2, 3):
            raise UnsupportedModelError(f"{self.path} is GGUF version {version}: only 2 and 3 work")
        num_tensors, num_fields = self._unpack("QQ")
        self.metadata: dict[str, Any] = {}
        for _ in range(num_fields):
            key = self._string()
            self.metadata[key] = self._value(self._unpack("I")[0])
        entries = [self._entry() for _ in range(num_tensors)]
        alignment = self.metadata.get("general.alignment", 32)
        self._data_start = -(-self._position // alignment) * alignment
        self.tensors = [self._tensor(*entry) for entry in entries]

    def _entry(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        (num_dims,) = self._unpack("I")
        dims = self._unpack(f"{num_dims}Q")  # fastest first
        ggml_type, offset = self._unpack("IQ")
        return name, dims[::-1], ggml_type, offset

    def _tensor(self, name: str, shape: tuple[int, ...], ggml_type: int, offset: int) -> GgufTensor:
        if ggml_type not in _BLOCKS:
            raise UnsupportedModelError(f"{name} in {self.path} is of unknown type {ggml_type}")
        numbers, num_bytes = _BLOCKS[ggml_type]
        size = math.prod(shape) // numbers * num_bytes
        return GgufTensor(name, shape, ggml_type, self._data_start + offset, size)

    def _unpack(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + layout, self.data, self._position)
        self._position += struct.calcsize("<" + layout)
        return values

    def _string(self) -> str:
        (length,) = self._unpack("Q")
        start = self._position
        self._position += length
        return self.data[start : self._position].decode("utf-8", "replace")

    def _value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self._unpack(_SCALARS[kind])[0]
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            raise ValueError(f"its metadata hold a value of type {kind}")
        element, count = self._unpack("IQ")
        if element in _SCALARS:
            return list(self._unpack(f"{count}{_SCALARS[element]}"))
        if element == _STRING:
            return self._skip_strings(count)
        return [self._value(element) for _ in range(count)]

    def _skip_strings(self, count: int) -> None:
        """Vocabularies have 100,000 of them and more: nobody here reads them, and no call is made for each."""
        data, position, read_length = self.data, self._position, struct.Struct("<Q").unpack_from
        for _ in range(count):
            position += 8 + read_length(data, position)[0]
        self._position = position
