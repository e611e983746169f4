"""One request inside the engine: its tokens, how far they are computed, and where it stands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import IntEnum
from hashlib import sha256

import msgspec

from kernelserve.core.block_hash import BlockHasher, ImageSpan
from kernelserve.protocol import (
    EngineCoreEvent,
    EngineCoreEventType,
    EngineCoreRequest,
    FinishReason,
    MultiModalFeatureSpec,
    PrefillStats,
)
from kernelserve.sampling_params import SamplingParams

__all__ = ["Request", "RequestStatus"]


class RequestStatus(IntEnum):
    """Where a request stands. The order matters: everything after PREEMPTED is finished."""

    WAITING = 1
    RUNNING = 2
    PREEMPTED = 3
    """Back in the queue; its K/V are given up and will be computed again."""
    FINISHED_STOPPED = 4
    FINISHED_LENGTH_CAPPED = 5
    FINISHED_ABORTED = 6
    FINISHED_ERROR = 7

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will come."""
        return self > _LAST_UNFINISHED


_LAST_UNFINISHED = int(RequestStatus.PREEMPTED)
_FINISH_REASONS = {
    RequestStatus.FINISHED_STOPPED: FinishReason.STOP,
    RequestStatus.FINISHED_LENGTH_CAPPED: FinishReason.LENGTH,
    RequestStatus.FINISHED_ABORTED: FinishReason.ABORT,
    RequestStatus.FINISHED_ERROR: FinishReason.ERROR,
}


class Request:
    """The engine's side of a request.

        all_token_ids   | prompt ............ | output ... |
        computed        |#############|   num_computed_tokens: in the cache or the plan in flight
        block_hashes    | h0 | h1 | h2 | h3 | h4 |           one for each full block, computed or
        not

    A step gives it tokens so that num_computed_tokens catches up with num_tokens. When it does, a
    token is sampled.
    """

    __slots__ = (
        "_block_size",
        "_hasher",
        "all_token_ids",
        "arrival_time",
        "block_hashes",
        "client_index",
        "events",
        "max_tokens",
        "mm_features",
        "num_computed_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "output_token_ids",
        "prefill_stats",
        "priority",
        "queued_at",
        "request_id",
        "sampling_params",
        "status",
        "stop_reason",
    )

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: list[int],
        sampling_params: SamplingParams,
        *,
        block_size: int,
        now: float = 0.0,
        arrival_time: float = 0.0,
        client_index: int = 0,
        priority: int = 0,
        cache_salt: str | None = None,
        mm_features: Sequence[MultiModalFeatureSpec] = (),
    ) -> None:
        self.request_id = request_id
        self.sampling_params = sampling_params
        self.max_tokens = sampling_params.max_tokens or sys.maxsize
        self.arrival_time = arrival_time
        self.queued_at = now
        self.client_index = client_index
        self.priority = priority

        self.num_prompt_tokens = len(prompt_token_ids)
        self.all_token_ids = list(prompt_token_ids)
        self.output_token_ids: list[int] = []
        self.num_computed_tokens = 0
        self.block_hashes: list[bytes] = []
        self.mm_features = list(mm_features)
        """The images of the prompt, by offset."""
        images = list(map(ImageSpan.of, mm_features))
        self._hasher = BlockHasher(block_size, cache_salt=cache_salt, images=images)
        self._hasher.extend(self.block_hashes, self.all_token_ids)
        self._block_size = block_size

        self.status = RequestStatus.WAITING
        self.stop_reason: int | str | None = None
        self.num_preemptions = 0
        self.prefill_stats: PrefillStats | None = None
        """Waits here from the first admission until the first output takes it along."""
        self.events = [EngineCoreEvent(EngineCoreEventType.QUEUED, now)]

    @classmethod
    def from_engine_core_request(
        cls, request: EngineCoreRequest, *, block_size: int, now: float
    ) -> Request:
        """Make a request out of its message. Hashes the prompt, so call it off the busy loop."""
        return cls(
            request.request_id,
            request.prompt_token_ids,
            request.sampling_params,
            block_size=block_size,
            now=now,
            arrival_time=request.arrival_time,
            client_index=request.client_index,
            priority=request.priority,
            cache_salt=request.cache_salt,
            mm_features=[_salted(one, request.cache_salt) for one in request.mm_features],
        )

    @property
    def prompt_token_ids(self) -> list[int]:
        """The prompt, as a new list."""
        return self.all_token_ids[: self.num_prompt_tokens]

    @property
    def num_tokens(self) -> int:
        """Prompt and output."""
        return len(self.all_token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far; preemption does not lower it."""
        return len(self.output_token_ids)

    @property
    def finish_reason(self) -> FinishReason | None:
        """The reason that callers see, None while unfinished."""
        return _FINISH_REASONS.get(self.status)

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will come."""
        return self.status > _LAST_UNFINISHED

    def append_output_token(self, token_id: int) -> None:
        """Take a sampled token, and hash the block that it fills, if any."""
        tokens = self.all_token_ids
        tokens.append(token_id)
        self.output_token_ids.append(token_id)
        if len(tokens) % self._block_size == 0:
            self._hasher.extend(self.block_hashes, tokens)

    def record_event(self, event_type: EngineCoreEventType, now: float) -> None:
        """Note something that the next output will report."""
        self.events.append(EngineCoreEvent(event_type, now))

    def take_events(self) -> list[EngineCoreEvent]:
        """Return the events since the last output and forget them."""
        events, self.events = self.events, []
        return events

    def take_prefill_stats(self) -> PrefillStats | None:
        """Return the prefill statistics the first time, None afterwards."""
        stats, self.prefill_stats = self.prefill_stats, None
        return stats

    def __repr__(self) -> str:
        return (
            f"Request({self.request_id}, {self.status.name}, "
            f"{self.num_computed_tokens}/{self.num_tokens} tokens computed)"
        )


def _salted(feature: MultiModalFeatureSpec, salt: str | None) -> MultiModalFeatureSpec:
    """An image under a name that only equal salts share: that it is encoded already tells of who sent it."""
    if salt is None:
        return feature
    name = sha256(f"{feature.mm_hash}/{salt}".encode()).hexdigest()
    return msgspec.structs.replace(feature, mm_hash=name)
