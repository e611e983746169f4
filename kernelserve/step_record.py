"""What an engine tells of itself with every step: counts, and why it did what it did. Part of the protocol."""

from __future__ import annotations

import msgspec

__all__ = [
    "EncoderInput",
    "KVCacheMap",
    "Positional",
    "PrefixCacheStats",
    "QueuedRequest",
    "Refusal",
    "SchedulerStats",
    "StepRecord",
]


class Positional(msgspec.Struct, array_like=True, gc=False):
    """Base of the wire structs: an array of fields in order."""


class PrefixCacheStats(Positional):
    """Counts since the engine started. Look-ups of preempted requests are counted apart: thrash is not a hit."""

    requests: int = 0
    queries: int = 0
    """Tokens looked up."""
    hits: int = 0
    """Tokens found."""
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of looked-up tokens that were found, 0 when nothing was looked up."""
        return self.hits / self.queries if self.queries else 0.0


class SchedulerStats(Positional):
    """The state of the scheduler after a step, or at rest. Block counts add up to `num_total_blocks`."""

    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    num_total_blocks: int = 0
    num_used_blocks: int = 0
    """Referenced by a request."""
    num_cached_blocks: int = 0
    """Free, but still hold a prefix that can be hit."""
    num_free_blocks: int = 0
    """Free and empty."""
    kv_cache_usage: float = 0.0
    """Used blocks / total blocks."""
    num_preemptions: int = 0
    num_steps: int = 0
    prefix_cache_stats: PrefixCacheStats = msgspec.field(default_factory=PrefixCacheStats)
    encoder_cache_size: int = 0
    """Embeddings that the encoder cache holds at most; 0: the model takes no images."""
    encoder_cache_used: int = 0
    """Embeddings that a request still needs."""
    encoder_cache_cached: int = 0
    """Embeddings that no request needs, but that are still there."""
    encoder_cache_queries: int = 0
    """Images looked up since the engine started, once for each request that needs them."""
    encoder_cache_hits: int = 0
    """Images found."""


class Refusal(Positional):
    """A request that wanted tokens in a step and got none, and why.

    `reason`: `blocks` (needed > available blocks), `budget` (no tokens left), `max_num_seqs` (all seats taken),
    `preempted_step` (something was preempted in this step, so nobody new was admitted), `encoder` (embeddings of an
    image: needed > what the encoder cache or the encoder's budget has left).
    Only the first waiting request that was refused is recorded: the ones behind it wait for it.
    """

    request_id: str
    reason: str
    needed: int = 0
    available: int = 0


class QueuedRequest(Positional):
    """A request that has joined the waiting queue."""

    request_id: str
    timestamp: float
    """The engine's monotonic clock when the request had arrived."""
    num_prompt_tokens: int


class EncoderInput(Positional):
    """An image that a request needed in a step."""

    request_id: str
    mm_hash: str
    num_embeds: int


class StepRecord(Positional):
    """What the scheduler decided in one step and how long the parts of the step took (seconds).

    A request gets a token in a step when its computed tokens reach its known ones (prompt and generated).
    """

    step: int
    timestamp: float
    """The engine's monotonic clock when the step began."""
    token_budget: int
    num_scheduled_tokens: dict[str, int]
    """Request id -> tokens granted, in the order of the decision."""
    num_prefill_tokens: int
    num_decode_tokens: int
    new_req_ids: list[str]
    resumed_req_ids: list[str]
    preempted_req_ids: list[str]
    finished_req_ids: list[str]
    """Ended in the update of this step."""
    refusals: list[Refusal]
    num_running_reqs: int
    num_waiting_reqs: int
    num_used_blocks: int
    num_cached_blocks: int
    num_free_blocks: int
    schedule_time: float = 0.0
    execute_time: float = 0.0
    sample_time: float = 0.0
    update_time: float = 0.0
    queued: list[QueuedRequest] = []
    """Joined the queue since the record before. One that came and went between two records is in none."""
    num_cached_tokens: dict[str, int] = {}
    """Request admitted in this step, new or resumed -> tokens that it found in the prefix cache, 0 included."""
    aborted_req_ids: list[str] = []
    """Ended outside of a step's update (abort, error) since the record before."""
    encoder_inputs: list[EncoderInput] = []
    """Images that went through the encoder in this step."""
    encoder_hits: list[EncoderInput] = []
    """Images that were needed first in this step and had been encoded before."""
    encode_time: float = 0.0
    """Seconds of `execute_time` that the encoder took."""


class KVCacheMap(Positional):
    """Who holds which block of the KV cache. Entry i of `states` is about block id i + 1: the null block is left out.

    A state is one byte: 0 free and empty, 1 free but cached (it can be hit), 2 used by one request, 3 by several.
    """

    num_blocks: int
    states: bytes
    req_ids: list[str]
    """The requests that hold blocks."""
    block_tables: list[list[int]]
    """Block ids of each of them, in the order of its tokens."""
