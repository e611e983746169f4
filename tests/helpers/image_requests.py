"""Requests whose images have arrays of known bytes, as they go from a client to its engine."""

from __future__ import annotations

from kernelserve.protocol import EngineCoreRequest, MultiModalFeatureSpec, PlaceholderRange
from kernelserve.sampling_params import SamplingParams
from kernelserve.wire import WireArray, WireDecoder, WireEncoder

__all__ = ["cross", "make_request", "sent"]

_SIZES = {"a": 1, "b": 3, "c": 4, "d": 7, "e": 30}


def make_request(names: str, request_id: str = "r") -> EngineCoreRequest:
    """One image for each letter; its size goes with the letter."""
    features = [
        MultiModalFeatureSpec(
            "image",
            name,
            PlaceholderRange(i, 1),
            {"pixels": WireArray("uint8", (_SIZES[name],), name.encode() * _SIZES[name])},
        )
        for i, name in enumerate(names)
    ]
    return EngineCoreRequest(request_id, [1] * 9, SamplingParams(), 0.0, mm_features=features)


def cross(request: EngineCoreRequest) -> EngineCoreRequest:
    """Send a request: what arrives shares nothing with it."""
    decoder: WireDecoder[EngineCoreRequest] = WireDecoder(EngineCoreRequest)
    return decoder.decode(WireEncoder().encode(request))


def sent(request: EngineCoreRequest) -> str:
    """Return the letters of the images whose arrays are in the message."""
    return "".join(f.mm_hash for f in request.mm_features if f.data is not None)
