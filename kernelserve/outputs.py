"""What a caller gets back: RequestOutput, its completions, log-probabilities and timings."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["CompletionOutput", "Logprob", "PositionLogprobs", "RequestMetrics", "RequestOutput"]


@dataclass(slots=True)
class Logprob:
    """One token at one position. `rank` 1 is the most probable; equal values share the worse rank."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


PositionLogprobs = dict[int, Logprob]
"""Token id -> Logprob; the sampled (or prompt) token first, then the top-k."""


@dataclass(slots=True)
class CompletionOutput:
    """One answer. In DELTA streams text, token_ids and logprobs hold only what is new."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[PositionLogprobs] | None = None
    finish_reason: str | None = None
    """`stop`, `length`, `abort` or `error` once this answer has ended."""
    stop_reason: int | str | None = None
    """The stop string or stop token id that matched; None for the model's own end token."""

    @property
    def finished(self) -> bool:
        """Whether this answer has ended."""
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestMetrics:
    """Timings of one request in seconds. `arrival_time` is wall clock, all others are durations.

    Queue, prefill and decode times come from the engine's monotonic clock, the rest from the client's: the two are
    never subtracted from each other.
    """

    arrival_time: float = 0.0
    time_to_first_token: float | None = None
    e2e_latency: float | None = None
    queued_time: float | None = None
    prefill_time: float | None = None
    decode_time: float | None = None
    num_generation_tokens: int = 0
    num_preemptions: int = 0
    num_image_tokens: int = 0
    """Prompt tokens that take an embedding of an image."""
    num_encoded_images: int = 0
    """Images that went through the encoder for this request, up to the first token."""
    num_encoder_hits: int = 0
    """Images that had been encoded before. Those that lie in a cached prefix are in neither count."""
    encode_time: float | None = None
    """By the engine's clock: what the encoder took in the steps that encoded images of this request."""


@dataclass(slots=True)
class RequestOutput:
    """The state of a request, or what is new about it: see RequestOutputKind."""

    request_id: str
    """The caller's id."""
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    prompt_logprobs: list[PositionLogprobs | None] | None = None
    """One entry a prompt token; the first is None."""
    num_cached_tokens: int | None = None
    metrics: RequestMetrics = field(default_factory=RequestMetrics)

    @property
    def text(self) -> str:
        """Text of the first answer."""
        return self.outputs[0].text if self.outputs else ""

    def merge(self, newer: RequestOutput, *, delta: bool) -> None:
        """Fold `newer` into this output, as when a consumer was too slow to take this one.

        With `delta` the texts, ids and logprobs of equal indices are joined, else the newer replaces the older.
        """
        self.finished |= newer.finished
        self.metrics = newer.metrics
        if self.prompt_logprobs is None:
            self.prompt_logprobs = newer.prompt_logprobs
        if self.num_cached_tokens is None:
            self.num_cached_tokens = newer.num_cached_tokens
        mine = {completion.index: i for i, completion in enumerate(self.outputs)}
        for completion in newer.outputs:
            position = mine.get(completion.index)
            if position is None:
                self.outputs.append(completion)
            elif delta:
                _extend(self.outputs[position], completion)
            else:
                self.outputs[position] = completion


def _extend(older: CompletionOutput, newer: CompletionOutput) -> None:
    older.text += newer.text
    older.token_ids.extend(newer.token_ids)
    if newer.logprobs:
        older.logprobs = (older.logprobs or []) + newer.logprobs
    older.cumulative_logprob = newer.cumulative_logprob
    older.finish_reason = newer.finish_reason
    older.stop_reason = newer.stop_reason
