"""The value of a %%generate: text, tokens, reasons and timings, while it runs and afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kernelserve.errors import InvalidRequestError
from kernelserve.outputs import CompletionOutput, PositionLogprobs, RequestMetrics, RequestOutput
from kernelserve.sampling_params import SamplingParams

__all__ = ["Result", "Timings", "Usage"]


@dataclass(slots=True)
class Usage:
    """Token counts of a request, all its answers together."""

    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    """Prompt tokens whose K/V came from the prefix cache."""
    num_generated_tokens: int = 0
    num_image_tokens: int = 0
    """Prompt tokens that are pictures."""
    num_encoded_images: int = 0
    """Pictures that went through the encoder for this request."""
    num_encoder_hits: int = 0
    """Pictures whose embeddings were there already. Those in a cached prefix are in neither count."""


@dataclass(slots=True)
class Timings:
    """In seconds, None while not known."""

    seconds: float | None = None
    """From the submit to the last token."""
    time_to_first_token: float | None = None
    queued_time: float | None = None
    tokens_per_second: float | None = None
    """Generated tokens after the first (of each answer), by the engine's time from the first to the last."""
    encode_time: float | None = None
    """What the encoder took for the pictures."""


@dataclass(eq=False)
class Result:
    """What `-o name` binds and `Out[n]` is. Grows while its request runs; keeps what there was when it is stopped.

    `text`, `token_ids`, `logprobs`, `finish_reason` and `stop_reason` are those of the first answer; with n > 1
    `outputs` has them all.
    """

    request_id: str
    prompt: str | None
    """As sent, chat template included."""
    prompt_token_ids: list[int]
    params: SamplingParams
    model: str
    images: Sequence[Any] = ()
    """The pictures of the prompt, those of a conversation included."""
    format: str = "text"
    show_tokens: bool = False
    """Whether the tokens are shaded by their probabilities."""
    chat: str | None = None
    line: str = ""
    """The options of the magic, as typed."""
    body: str = ""
    """What the cell said."""
    execution_count: int | None = None
    """The cell that shows the text."""
    outputs: list[CompletionOutput] = field(default_factory=list)
    prompt_logprobs: list[PositionLogprobs | None] | None = None
    usage: Usage = field(default_factory=Usage)
    timings: Timings = field(default_factory=Timings)
    error: Exception | None = None
    """What ended the request early, None if nothing did."""
    stop: Callable[[], None] = field(default=lambda: None)
    """Ends it; the text so far is kept. The same as its Stop button."""
    continuation: Callable[[int, int], str] = field(
        default=lambda _index, _token_id: "", repr=False
    )
    """(token index, token id) -> source of a cell that goes on with that token in the place of the chosen one."""
    _done: Future[None] = field(default_factory=Future, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        self.usage.num_prompt_tokens = len(self.prompt_token_ids)
        self.outputs = [CompletionOutput(index, "", []) for index in range(self.params.n)]

    @property
    def text(self) -> str:
        """Text of the first answer, so far."""
        return self.outputs[0].text

    @property
    def texts(self) -> list[str]:
        """Texts of all answers."""
        return [output.text for output in self.outputs]

    @property
    def token_ids(self) -> list[int]:
        """Generated ids of the first answer."""
        return self.outputs[0].token_ids

    @property
    def logprobs(self) -> list[PositionLogprobs] | None:
        """One entry a generated token if `--logprobs` asked for them, else None."""
        return self.outputs[0].logprobs

    @property
    def finish_reason(self) -> str | None:
        """`stop`, `length`, `abort`, `error`; None while it runs."""
        return self.outputs[0].finish_reason

    @property
    def stop_reason(self) -> int | str | None:
        """The stop string or stop token that matched, if one did."""
        return self.outputs[0].stop_reason

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        return self._done.done()

    def wait(self, timeout: float | None = None) -> Result:
        """Wait for a background run, and raise what ended it, if anything did. Raises TimeoutError."""
        self._done.result(timeout)
        if self.error is not None:
            raise self.error
        return self

    def summary(self) -> str:
        """Say in one line how many tokens came, how fast, why it ended, and what caches and pictures did."""
        usage, timings = self.usage, self.timings
        parts = [_count(usage.num_generated_tokens, "token")]
        if timings.tokens_per_second is not None:
            parts.append(f"{timings.tokens_per_second:.1f} tok/s")
        if (reason := self._ended_by()) is not None:
            parts.append(reason)
        if usage.num_cached_tokens:
            parts.append(
                f"{usage.num_cached_tokens:,} of {_count(usage.num_prompt_tokens, 'prompt token')} from the cache"
            )
        if usage.num_image_tokens:
            parts.append(_count(usage.num_image_tokens, "image token") + self._images_from())
        return " · ".join(parts)

    def explore(self) -> None:
        """Show the tokens with their alternatives; a click on one goes on from there in a new cell.

        Needs an answer that was generated with `--logprobs` or `--tokens`.
        """
        from kernelserve_widgets.views.token_explorer import TokenExplorer

        if not self.logprobs:
            raise InvalidRequestError(
                f"{self.request_id} has no log-probabilities: generate it with --tokens or --logprobs 5"
            )
        TokenExplorer(self, self.continuation).show()

    def to_dict(self) -> dict[str, Any]:
        """Return the plain data: what a JSON file of results would hold."""
        return {
            "request_id": self.request_id,
            "model": self.model,
            "prompt": self.prompt,
            "texts": self.texts,
            "token_ids": [output.token_ids for output in self.outputs],
            "finish_reasons": [output.finish_reason for output in self.outputs],
            "stop_reasons": [output.stop_reason for output in self.outputs],
            "usage": asdict(self.usage),
            "timings": asdict(self.timings),
            "chat": self.chat,
            "error": None if self.error is None else str(self.error),
        }

    def merge(self, delta: RequestOutput) -> None:
        """Add what is new. Called by whoever runs the request."""
        with self._lock:
            for new in delta.outputs:
                self._extend(self.outputs[new.index], new)
            if delta.prompt_logprobs is not None:
                self.prompt_logprobs = delta.prompt_logprobs
            if delta.num_cached_tokens is not None:
                self.usage.num_cached_tokens = delta.num_cached_tokens
            self._time(delta.metrics)

    def snapshot(self) -> list[CompletionOutput]:
        """Return the answers so far, each whole; nobody else changes the copies."""
        with self._lock:
            return [
                replace(
                    output,
                    token_ids=output.token_ids.copy(),
                    logprobs=output.logprobs and output.logprobs.copy(),
                )
                for output in self.outputs
            ]

    def fail(self, error: Exception) -> None:
        """Keep what ended it early; what there is of the answers stays."""
        self.error = error
        for output in self.outputs:
            output.finish_reason = output.finish_reason or "error"

    def finish(self) -> None:
        """Say that nothing more will come. Called once, by whoever runs the request."""
        self._done.set_result(None)

    def __await__(self) -> Generator[Any, None, Result]:
        from kernelserve_widgets.waiting import wait_for

        yield from wait_for(self._done).__await__()
        return self.wait()

    def __str__(self) -> str:
        return self.text

    def describe(self) -> str:
        """Say what it is and how it goes, in one line."""
        return f"{self.request_id}: {self.summary() if self.finished else f'running, {self.summary()}'}"

    def __repr__(self) -> str:
        return f"<Result {self.describe()}>"

    def _repr_mimebundle_(self, **_: Any) -> Any:
        """In the cell that streamed it the text is there already, so there only the summary is shown."""
        from kernelserve_widgets.shell import execution_count
        from kernelserve_widgets.views.static_output import static_bundle

        if not self.finished or self.execution_count == execution_count():
            return {"text/plain": self.describe()}
        return static_bundle(self, show_tokens=self.show_tokens)

    def _extend(self, output: CompletionOutput, new: CompletionOutput) -> None:
        output.text += new.text
        output.token_ids.extend(new.token_ids)
        if new.logprobs:
            output.logprobs = (output.logprobs or []) + new.logprobs
        if new.cumulative_logprob is not None:
            output.cumulative_logprob = new.cumulative_logprob
        output.finish_reason = new.finish_reason or output.finish_reason
        output.stop_reason = new.stop_reason if new.stop_reason is not None else output.stop_reason
        self.usage.num_generated_tokens += len(new.token_ids)

    def _time(self, metrics: RequestMetrics) -> None:
        usage, timings = self.usage, self.timings
        usage.num_image_tokens = metrics.num_image_tokens
        usage.num_encoded_images = metrics.num_encoded_images
        usage.num_encoder_hits = metrics.num_encoder_hits
        timings.encode_time = metrics.encode_time
        timings.time_to_first_token = metrics.time_to_first_token
        timings.queued_time = metrics.queued_time
        timings.seconds = metrics.e2e_latency
        later = usage.num_generated_tokens - len(self.outputs)
        if metrics.decode_time and later > 0:
            timings.tokens_per_second = later / metrics.decode_time

    def _images_from(self) -> str:
        if self.timings.encode_time is not None:
            return f" encoded in {self.timings.encode_time:.2f} s"
        return " from the encoder cache" if self.usage.num_encoder_hits else ""

    def _ended_by(self) -> str | None:
        reasons = {output.finish_reason for output in self.outputs}
        if None in reasons:
            return None
        if reasons == {"stop"} and self.stop_reason is not None:
            return f"stop ({self.stop_reason!r})"
        return ", ".join(sorted(reason for reason in reasons if reason))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
