"""The plan of one step as data: what the scheduler tells the model runner, and what it hears back."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelserve.protocol import LogprobsLists, MultiModalFeatureSpec
from kernelserve.sampling_params import SamplingParams

__all__ = ["CachedRequestData", "ModelRunnerOutput", "NewRequestData", "SchedulerOutput"]


@dataclass(slots=True)
class NewRequestData:
    """A request that the runner does not know (first schedule), or must learn anew (resumed after preemption).

    `token_ids` is the prompt, and for a resumed request also the tokens generated so far: to the runner a resumed
    request is a new one. `num_prompt_tokens` tells where the prompt ends.
    """

    req_id: str
    token_ids: list[int]
    num_prompt_tokens: int
    sampling_params: SamplingParams
    block_ids: list[int]
    num_computed_tokens: int
    """Tokens whose K/V are already in the cache: a prefix hit."""
    mm_features: list[MultiModalFeatureSpec] = field(default_factory=list)
    """The images of the prompt, by offset."""


@dataclass(slots=True)
class CachedRequestData:
    """What changed for the requests that the runner knows; the lists run in parallel."""

    req_ids: list[str] = field(default_factory=list)
    new_block_ids: list[list[int]] = field(default_factory=list)
    """To append to the request's block table."""
    num_computed_tokens: list[int] = field(default_factory=list)


@dataclass(slots=True)
class SchedulerOutput:
    """The plan of one step.

    Invariants: every id of `num_scheduled_tokens` is in exactly one of the two request lists; all counts are > 0;
    their sum is `total_num_scheduled_tokens`, at most the token budget, unless the last of them is an image that
    must not be cut. The runner drops `finished_req_ids` (ended since the last plan) and `preempted_req_ids` first: an
    id may be finished here and new again in the same plan. The same goes for `free_encoder_mm_hashes` and
    `scheduled_encoder_inputs`. Each embedding that a scheduled token takes comes out of the encoder in this plan, or
    has done so before and has not been freed.
    """

    scheduled_new_reqs: list[NewRequestData]
    scheduled_cached_reqs: CachedRequestData
    num_scheduled_tokens: dict[str, int]
    total_num_scheduled_tokens: int
    finished_req_ids: set[str]
    preempted_req_ids: set[str]
    scheduled_encoder_inputs: list[MultiModalFeatureSpec] = field(default_factory=list)
    """Images to encode, each hash once; their data are present."""
    free_encoder_mm_hashes: list[str] = field(default_factory=list)
    """Encoder outputs to drop; unknown ones are ignored."""


@dataclass(slots=True)
class ModelRunnerOutput:
    """What a step computed. `sampled_token_ids[i]` belongs to `req_ids[i]`: empty while the prompt is unfinished."""

    req_ids: list[str]
    sampled_token_ids: list[list[int]]
    logprobs: dict[str, LogprobsLists] = field(default_factory=dict)
    """Only for requests that asked, one row for each sampled token."""
    prompt_logprobs: dict[str, LogprobsLists] = field(default_factory=dict)
    """Only in the step that completes a prompt: rows for prompt positions 1..n-1."""
    errors: dict[str, str] = field(default_factory=dict)
    """Requests that failed by themselves (NaN logits, empty token mask): id -> one-line reason."""
    failed_encoder_mm_hashes: list[str] = field(default_factory=list)
    """Images that could not be encoded. Every request of the step that has one among its computed tokens is in
    `errors`, also one that only shares blocks with those who needed it."""
    encode_time: float = 0.0
    """Seconds that the encoder took."""
