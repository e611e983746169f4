"""Images go to the engine through shared memory; only where they lie goes over the socket."""

from __future__ import annotations

import logging

import msgspec

from kernelserve.multimodal.segment_reader import SegmentReader
from kernelserve.multimodal.segment_writer import SegmentWriter
from kernelserve.protocol import EngineCoreRequest, MultiModalFeatureSpec
from kernelserve.wire import WireArray

__all__ = ["SharedImageReceiver", "SharedImageSender"]

_LOGGER = logging.getLogger(__name__)


class SharedImageSender:
    """The client's side. For one thread. The segment is made with the first image.

    What finds no room goes over the socket as it is; without a segment, which is logged, that is everything.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._writer: SegmentWriter | None = None
        self._is_possible = True
        self._shortened: dict[str, EngineCoreRequest] = {}

    def pack(self, request: EngineCoreRequest) -> EngineCoreRequest:
        """Return what to send: `request` with the places of its arrays instead of them."""
        if not request.mm_features:
            return request
        own = {feature.mm_hash for feature in request.mm_features}
        features = [self._pack_one(feature, own) for feature in request.mm_features]
        self._shortened[request.request_id] = request
        return msgspec.structs.replace(request, mm_features=features)

    def recall(self, request_id: str) -> EngineCoreRequest | None:
        """An image was overwritten before the engine came to it: return the request with all arrays in it."""
        return self._shortened.pop(request_id, None)

    def forget(self, request_id: str) -> None:
        """The engine has answered, or the request was aborted."""
        self._shortened.pop(request_id, None)

    def close(self) -> None:
        """Let go of the segment."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _pack_one(self, feature: MultiModalFeatureSpec, own: set[str]) -> MultiModalFeatureSpec:
        writer = self._open()
        if feature.data is None or writer is None:
            return feature
        place = writer.get(feature.mm_hash)
        place = place or writer.put(feature.mm_hash, feature.data, keep=own)
        if place is None:
            return feature
        return msgspec.structs.replace(feature, data=None, shared=place)

    def _open(self) -> SegmentWriter | None:
        if self._writer is None and self._is_possible:
            try:
                self._writer = SegmentWriter(self._max_bytes)
            except OSError:
                self._is_possible = False
                _LOGGER.warning(
                    "No %d bytes can be shared with the engine: images go over its socket",
                    self._max_bytes,
                    exc_info=True,
                )
        return self._writer


class SharedImageReceiver:
    """The engine's side, for one client."""

    def __init__(self, client_pid: int) -> None:
        self._pid = client_pid
        self._reader: SegmentReader | None = None
        self._last: dict[int, dict[str, WireArray]] = {}
        """Generation -> arrays of the last request: its other answers, or the next question, have them too."""

    def unpack(self, request: EngineCoreRequest) -> bool:
        """Copy the arrays out of the segment. False: one was overwritten, the request must be sent again.

        Raises InvalidRequestError if the segment cannot be read, ProtocolError for a place outside of it.
        """
        found: dict[int, dict[str, WireArray]] = {}
        for feature in request.mm_features:
            place, feature.shared = feature.shared, None
            if place is None:
                continue
            if self._reader is None or self._reader.secret != place.secret:
                self.close()
                self._reader = SegmentReader(self._pid, place)
            data = found.get(place.generation) or self._last.get(place.generation)
            data = data or self._reader.read(place)
            if data is None:
                return False
            found[place.generation] = feature.data = data
        self._last = found
        return True

    def close(self) -> None:
        """Let go of the segment."""
        self._last = {}
        if self._reader is not None:
            self._reader.close()
            self._reader = None
