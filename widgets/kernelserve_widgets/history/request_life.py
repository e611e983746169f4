"""What is known of one request: where it stands, and what it did when."""

from __future__ import annotations

import math
import sys
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from kernelserve_widgets.history.image_use import ImageUse

__all__ = ["OPEN_STEP", "RequestLife", "RequestState", "Span", "SpanKind"]

SpanKind = Literal["queued", "prefill", "decode", "preempted"]
RequestState = Literal["waiting", "prefill", "decode", "preempted", "finished", "aborted"]

OPEN_STEP = sys.maxsize
"""`last_step` of a span that goes on."""

_MAX_TOKEN_TIMES = 256
_MAX_SPANS = 512
_MAX_IMAGES = 64


@dataclass(slots=True, eq=False)
class Span:
    """A stretch of a life, in seconds of the engine's clock; `end` is infinity while it goes on.

    Steps `first_step` to `last_step` saw the request like this. There may be none of them, with
    last_step < first_step: a request that is admitted by the first step that sees it was queued all the same.
    """

    kind: SpanKind
    start: float
    end: float
    first_step: int
    last_step: int

    @property
    def is_open(self) -> bool:
        """Whether it goes on."""
        return self.end == math.inf

    def covers(self, step: int) -> bool:
        """Whether the request was like this in `step`."""
        return self.first_step <= step <= self.last_step


@dataclass(slots=True, eq=False)
class RequestLife:
    """One request as the step records tell it. Spans are in order and each begins where the one before ends.

    Times are seconds of the engine's monotonic clock. An error counts as an end like others, and its last step as one
    that gave a token if it could have.
    """

    request_id: str
    label: str
    queued_at: float
    num_prompt_tokens: int = 0
    """0 while unknown: of a request that ran before the records begin, it is learned when the prompt is complete."""
    num_cached_tokens: int = 0
    """Found in the prefix cache at the first admission."""
    num_computed_tokens: int = 0
    """In the KV cache after the last step seen; 0 after a preemption."""
    num_generated_tokens: int = 0
    num_preemptions: int = 0
    num_encoded_images: int = 0
    """How often an image was encoded for it."""
    num_found_images: int = 0
    """How often an image that it needs was in the encoder cache."""
    state: RequestState = "waiting"
    spans: list[Span] = field(default_factory=list)
    first_token_at: float | None = None
    ended_at: float | None = None
    token_times: deque[float] = field(default_factory=lambda: deque(maxlen=_MAX_TOKEN_TIMES))
    """When the last 256 tokens came."""
    images: deque[ImageUse] = field(default_factory=lambda: deque(maxlen=_MAX_IMAGES))
    """The last 64 that it needed."""
    waiting_reason: str = ""
    """Why it got nothing in the last step, in words; empty if it got something."""
    last_active_at: float = 0.0
    """End of the last step that gave it tokens."""
    is_uncertain: bool = False
    """Whether `num_computed_tokens` is a guess: steps are missing, or the prompt is unknown."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come."""
        return self.ended_at is not None

    @property
    def is_running(self) -> bool:
        """Whether it holds blocks."""
        return self.state in ("prefill", "decode")

    @property
    def num_known_tokens(self) -> int:
        """Prompt and generated; each must be computed before the next token comes."""
        return self.num_prompt_tokens + self.num_generated_tokens

    def span_at(self, step: int) -> Span | None:
        """Return what it was in `step`, None if it was not there."""
        for span in reversed(self.spans):
            if span.first_step <= step:
                return span if span.covers(step) else None
        return None

    def begin(self, kind: SpanKind, time: float, step: int) -> None:
        """Close the span that goes on and open one that `step` is the first to see."""
        self._close(time, step - 1)
        if len(self.spans) >= _MAX_SPANS:
            del self.spans[: _MAX_SPANS // 2]
        start = self.spans[-1].end if self.spans else time
        self.spans.append(Span(kind, start, math.inf, step, OPEN_STEP))
        self.state = "waiting" if kind == "queued" else kind

    def admit(self, num_cached_tokens: int, time: float, step: int) -> None:
        """Start to compute it, for the first time or again."""
        if not self.num_preemptions:
            self.num_cached_tokens = num_cached_tokens
        self.num_computed_tokens = num_cached_tokens
        self.is_uncertain = not self.num_prompt_tokens
        self.begin("prefill", time, step)

    def preempt(self, time: float, step: int) -> None:
        """Take what is computed away."""
        self.num_computed_tokens = 0
        self.num_preemptions += 1
        self.begin("preempted", time, step)

    def grant(self, num_tokens: int, is_decode: bool, step_end: float, step: int) -> None:
        """Compute `num_tokens` more in `step`, and count the token that comes out if all are computed.

        `is_decode`: they are certainly a single one behind a complete prompt; matters only while `is_uncertain`.
        """
        if self.is_uncertain and is_decode:
            self._learn(step)
        self.waiting_reason = ""
        self.num_computed_tokens += num_tokens
        self.last_active_at = step_end
        if not self.is_uncertain and self.num_computed_tokens >= self.num_known_tokens:
            self._count_token(step_end, step)

    def add_image(self, image: ImageUse) -> None:
        """Note an image that it needed."""
        self.images.append(image)
        if image.is_hit:
            self.num_found_images += 1
        else:
            self.num_encoded_images += 1

    def end(self, state: Literal["finished", "aborted"], time: float, last_step: int) -> None:
        """End it; `last_step` is the last one that saw it."""
        if state == "finished" and self.is_uncertain and self.is_running:
            self._learn(last_step + 1)
        self._close(time, last_step)
        self.ended_at = max(time, self.spans[-1].end) if self.spans else time
        self.state = state
        self.waiting_reason = ""

    def _learn(self, step: int) -> None:
        """Conclude that all tokens were computed before `step`, which gave a token then."""
        self.is_uncertain = False
        if not self.num_prompt_tokens:
            self.num_prompt_tokens = max(0, self.num_computed_tokens - self.num_generated_tokens)
        self.num_computed_tokens = self.num_known_tokens
        if self.state == "prefill" and self.last_active_at:
            self._count_token(self.last_active_at, step - 1)
            return
        self.num_computed_tokens -= 1
        if self.state == "prefill":  # it has not been seen to compute anything
            self.begin("decode", self.spans[-1].start, step)

    def _count_token(self, time: float, step: int) -> None:
        self.num_generated_tokens += 1
        self.token_times.append(time)
        if self.first_token_at is None:
            self.first_token_at = time
        if self.state == "prefill":
            self.begin("decode", time, step + 1)

    def _close(self, time: float, last_step: int) -> None:
        if not self.spans or not self.spans[-1].is_open:
            return
        span = self.spans[-1]
        if span.kind == "decode" and last_step < span.first_step:
            self.spans.pop()  # it ended with its first token
            return
        span.end = max(time, span.start)
        span.last_step = last_step
