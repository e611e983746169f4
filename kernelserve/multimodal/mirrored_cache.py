"""One cache of processed images on both sides of the socket: the client knows what the engine still has.

Both sides do the same with the same images in the same order, so both forget the same ones. When they differ after
all (a message was lost, a client came back), the engine asks for the request again, and gets all of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from kernelserve.protocol import EngineCoreRequest, MultiModalFeatureSpec
from kernelserve.wire import WireArray

__all__ = ["ImageReceiver", "ImageSender"]

_Data = dict[str, WireArray]
_Kept = TypeVar("_Kept")


class _Mirror(Generic[_Kept]):
    """The order in which images are forgotten. `max_bytes` counts arrays; what alone is over it is never kept."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._kept: OrderedDict[str, tuple[int, _Kept]] = OrderedDict()

    def begin(self, features: Sequence[MultiModalFeatureSpec]) -> None:
        """A request comes: its own images are forgotten last."""
        for feature in features:
            if feature.mm_hash in self._kept:
                self._kept.move_to_end(feature.mm_hash)

    def get(self, mm_hash: str) -> _Kept | None:
        entry = self._kept.get(mm_hash)
        return entry[1] if entry else None

    def put(self, mm_hash: str, size: int, value: _Kept) -> None:
        if size > self._max_bytes:
            return
        old_size, _ = self._kept.pop(mm_hash, (0, None))
        self._kept[mm_hash] = (size, value)
        self._num_bytes += size - old_size
        while self._num_bytes > self._max_bytes:
            _, (dropped, _) = self._kept.popitem(last=False)
            self._num_bytes -= dropped

    def clear(self) -> None:
        self._kept.clear()
        self._num_bytes = 0


class ImageSender:
    """The client's side. For one thread, which sends requests in the order in which it packs them."""

    def __init__(self, max_bytes: int) -> None:
        self._mirror: _Mirror[bool] = _Mirror(max_bytes)
        self._shortened: dict[str, EngineCoreRequest] = {}

    def pack(self, request: EngineCoreRequest) -> EngineCoreRequest:
        """Return what to send: `request` without the arrays that the engine has."""
        if not request.mm_features:
            return request
        self._mirror.begin(request.mm_features)
        features = [self._pack_one(feature) for feature in request.mm_features]
        if all(new is old for new, old in zip(features, request.mm_features, strict=True)):
            return request
        self._shortened[request.request_id] = request
        return msgspec.structs.replace(request, mm_features=features)

    def recall(self, request_id: str) -> EngineCoreRequest | None:
        """The engine lacks an image of this request: return all of it, to be sent as it is. None: nobody waits."""
        self._mirror.clear()
        return self._shortened.pop(request_id, None)

    def forget(self, request_id: str) -> None:
        """The engine has answered, or the request was aborted."""
        self._shortened.pop(request_id, None)

    def close(self) -> None:
        """Nothing to do: the arrays are those of the requests."""

    def _pack_one(self, feature: MultiModalFeatureSpec) -> MultiModalFeatureSpec:
        if feature.data is None:
            return feature
        if self._mirror.get(feature.mm_hash):
            return msgspec.structs.replace(feature, data=None)
        self._mirror.put(feature.mm_hash, _size(feature.data), True)
        return feature


class ImageReceiver:
    """The engine's side, for one client."""

    def __init__(self, max_bytes: int) -> None:
        self._mirror: _Mirror[_Data] = _Mirror(max_bytes)

    def unpack(self, request: EngineCoreRequest) -> bool:
        """Put back what the sender left out. False: something is missing, the request must be sent again."""
        self._mirror.begin(request.mm_features)
        complete = True
        for feature in request.mm_features:
            if feature.data is None:
                feature.data = self._mirror.get(feature.mm_hash)
                complete &= feature.data is not None
            else:
                self._mirror.put(feature.mm_hash, _size(feature.data), feature.data)
        return complete

    def close(self) -> None:
        """Nothing to do: what is kept goes with this."""


def _size(data: _Data) -> int:
    return sum(array.data.nbytes for array in data.values())
