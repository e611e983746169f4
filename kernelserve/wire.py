"""msgpack with large arrays out of band: one message is a list of frames, the body first, then the arrays.

No pickle, no extension types, no numpy: an array is its dtype, shape and bytes, and the ends convert it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from kernelserve.errors import ProtocolError

__all__ = ["INLINE_BYTES", "MAX_MESSAGE_BYTES", "WireArray", "WireDecoder", "WireEncoder"]

INLINE_BYTES = 256
"""Arrays below this travel inside the body."""
MAX_MESSAGE_BYTES = 256 * 2**20
"""Largest message that is decoded, all frames together."""

_FORMATS = {"int32": "i", "int64": "q", "float32": "f", "uint8": "B", "bool": "?"}
_T = TypeVar("_T")


class WireArray:
    """A C-contiguous array without numpy. `data` may alias the received frame: copy it to keep it.

    Raises ProtocolError for an unknown dtype or when the bytes do not fill the shape.
    """

    __slots__ = ("data", "dtype", "shape")

    def __init__(
        self, dtype: str, shape: Sequence[int], data: bytes | bytearray | memoryview
    ) -> None:
        self.dtype = dtype
        self.shape = tuple(shape)
        self.data = memoryview(data).cast("B")
        if self.num_bytes(dtype, self.shape) != self.data.nbytes:
            raise ProtocolError(
                f"{self.data.nbytes} bytes do not fill a {dtype} array of shape {shape}"
            )

    @staticmethod
    def num_bytes(dtype: str, shape: Sequence[int]) -> int:
        """Return the size of an array. Raises ProtocolError for an unknown dtype or a negative dimension."""
        if dtype not in _FORMATS:
            raise ProtocolError(f"array dtype {dtype!r} is not one of {', '.join(_FORMATS)}")
        if any(n < 0 for n in shape):
            raise ProtocolError(f"an array cannot have the shape {list(shape)}")
        itemsize = memoryview(b"\0" * 8).cast(_FORMATS[dtype]).itemsize  # type: ignore[call-overload]
        return int(math.prod(shape) * itemsize)

    def tolist(self) -> list[Any]:
        """Return the values as nested lists of Python numbers, shaped like the array."""
        flat: list[Any] = self.data.cast(_FORMATS[self.dtype]).tolist()  # type: ignore[call-overload]
        for size in reversed(self.shape[1:]):
            flat = [flat[i : i + size] for i in range(0, len(flat), size)] if size else []
        return flat

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WireArray):
            return NotImplemented
        return (self.dtype, self.shape, self.data) == (other.dtype, other.shape, other.data)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"WireArray({self.dtype}, {list(self.shape)})"


class WireEncoder:
    """Turns a struct into frames. Not thread-safe: one for each thread."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._encode_array)
        self._buffers: list[memoryview] = []

    def encode(self, message: Any) -> list[bytes | memoryview]:
        """Return the frames of `message`. Arrays are not copied: leave them unchanged until they are sent."""
        self._buffers = []
        body = self._encoder.encode(message)
        return [body, *self._buffers]

    def _encode_array(self, value: Any) -> Any:
        if not isinstance(value, WireArray):
            raise ProtocolError(f"{type(value).__name__} cannot be sent")
        if value.data.nbytes < INLINE_BYTES:
            return (value.dtype, value.shape, bytes(value.data))
        self._buffers.append(value.data)
        return (value.dtype, value.shape, len(self._buffers))


class WireDecoder(Generic[_T]):
    """Turns frames into structs of one type (or tagged union). Not thread-safe: one for each thread."""

    def __init__(self, message_type: Any, *, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._decoder = msgspec.msgpack.Decoder(message_type, dec_hook=self._decode_array)
        self._max_bytes = max_message_bytes
        self._frames: Sequence[bytes | memoryview] = ()

    def decode(self, frames: Sequence[bytes | memoryview]) -> _T:
        """Return the message in `frames`. Raises ProtocolError if it is too large or malformed."""
        size = sum(memoryview(frame).nbytes for frame in frames)
        if size > self._max_bytes:
            raise ProtocolError(f"a message of {size} bytes is over the limit of {self._max_bytes}")
        if not frames:
            raise ProtocolError("a message has no frames")
        self._frames = frames
        try:
            message: _T = self._decoder.decode(frames[0])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"a message could not be decoded: {error}") from error
        finally:
            self._frames = ()
        return message

    def _decode_array(self, expected: type, value: Any) -> Any:
        if expected is not WireArray or not isinstance(value, list) or len(value) != 3:
            raise ProtocolError(f"{value!r:.80} is not a {expected.__name__}")
        dtype, shape, data = value
        if isinstance(data, int):
            if not 0 < data < len(self._frames):
                raise ProtocolError(f"array frame {data} of {len(self._frames) - 1} does not exist")
            data = self._frames[data]
        if not isinstance(dtype, str) or not isinstance(shape, list):
            raise ProtocolError("an array needs a dtype and a shape")
        return WireArray(dtype, shape, data)
