"""One answer while it is generated: its tokens, text, log-probabilities and timings."""

from __future__ import annotations

from kernelserve.client.answer_text import AnswerText
from kernelserve.client.detokenizer import IncrementalDetokenizer
from kernelserve.client.logprobs import LogprobsProcessor
from kernelserve.client.processed_request import ProcessedRequest
from kernelserve.client.request_timings import RequestTimings
from kernelserve.client.stop_strings import StopStrings
from kernelserve.client.tokenizer import ClientTokenizer
from kernelserve.outputs import CompletionOutput, PositionLogprobs
from kernelserve.protocol import EngineCoreOutput, FinishReason

__all__ = ["RequestState"]


class RequestState:
    """Grows with each output of the engine until it has a finish reason, which never changes.

    A stop string is found here, not in the engine: tokens behind the one that completed it are
    dropped. The stop token stays in `token_ids` but not in the text, unless
    `include_stop_str_in_output`. What is handed out is copied.
    """

    def __init__(
        self,
        request: ProcessedRequest,
        index: int,
        tokenizer: ClientTokenizer | None,
        now: float,
    ) -> None:
        params = request.params
        self.internal_id = request.child_id(index)
        self.index = index
        self.token_ids: list[int] = []
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self.num_cached_tokens: int | None = None
        self.prompt_logprobs: list[PositionLogprobs | None] | None = None
        self.timings = RequestTimings(arrival_time=request.arrival_time, now=now)
        self._model_stop_token_ids = request.model_stop_token_ids
        self._include_stop = params.include_stop_str_in_output
        self._wants_prompt_logprobs = params.prompt_logprobs is not None and index == 0
        self._logprobs: LogprobsProcessor | None = None
        if params.logprobs is not None or self._wants_prompt_logprobs:
            decoder = tokenizer if params.detokenize else None
            self._logprobs = LogprobsProcessor(decoder, request.prompt_token_ids)
        self._reports_logprobs = params.logprobs is not None
        self._text: AnswerText | None = None
        if params.detokenize and tokenizer is not None:
            self._text = AnswerText(
                IncrementalDetokenizer(
                    tokenizer,
                    request.prompt_token_ids,
                    skip_special_tokens=params.skip_special_tokens,
                ),
                StopStrings(params.stop_strings, include_in_output=self._include_stop),
                min_tokens=params.min_tokens,
            )
        self._num_taken = 0

    @property
    def finished(self) -> bool:
        """Whether the answer has ended."""
        return self.finish_reason is not None

    def update(self, output: EngineCoreOutput, *, now: float, engine_time: float) -> None:
        """Take what one step brought. An `error` has no place here: it fails the whole request."""
        if output.events:
            self.timings.record_events(output.events)
        if output.prefill_stats is not None and self.num_cached_tokens is None:
            self.num_cached_tokens = output.prefill_stats.num_cached_tokens
            self.timings.record_prefill(output.prefill_stats)
        if self._wants_prompt_logprobs and self.prompt_logprobs is None:
            self._read_prompt_logprobs(output)
        num_before = len(self.token_ids)
        self._read_tokens(output.new_token_ids, output.finish_reason)
        num_new = len(self.token_ids) - num_before
        if num_new:
            self.timings.record_tokens(now=now, engine_time=engine_time)
        if self._reports_logprobs and output.new_logprobs is not None:
            assert self._logprobs is not None
            self._logprobs.append(output.new_logprobs, num_new)
        if not self.finished and output.finish_reason is not None:
            self._finish_as_engine(output.finish_reason, output.stop_reason)
        if self.finished:
            self.timings.record_end(now)

    def abort(self, now: float | None) -> None:
        """End the answer here, with the text that there is."""
        assert not self.finished
        self.finish_reason = str(FinishReason.ABORT)
        if self._text is not None:
            self._text.finish(search=False)
        if now is not None:
            self.timings.record_end(now)

    def completion(self) -> CompletionOutput:
        """Return everything so far, as far as it is certain."""
        logprobs = self._logprobs if self._reports_logprobs else None
        return CompletionOutput(
            self.index,
            self._text.visible() if self._text is not None else "",
            self.token_ids.copy(),
            logprobs.cumulative_logprob if logprobs else None,
            logprobs.positions.copy() if logprobs else None,
            self.finish_reason,
            self.stop_reason,
        )

    def take_delta(self) -> CompletionOutput:
        """Return what the last call did not. Without new tokens there are no logprobs."""
        start, self._num_taken = self._num_taken, len(self.token_ids)
        logprobs = self._logprobs if self._reports_logprobs else None
        new_ids = self.token_ids[start:]
        return CompletionOutput(
            self.index,
            self._text.take_new() if self._text is not None else "",
            new_ids,
            logprobs.cumulative_logprob if logprobs else None,
            logprobs.positions[start:] if logprobs and new_ids else None,
            self.finish_reason,
            self.stop_reason,
        )

    def _read_tokens(self, new_ids: list[int], reason: FinishReason | None) -> None:
        hides_last = reason is FinishReason.STOP and not self._include_stop
        if self._text is None:
            self.token_ids += new_ids
            return
        num_read = len(new_ids) - hides_last
        for token_id in new_ids[:num_read]:
            self.token_ids.append(token_id)
            if (stop := self._text.feed(token_id)) is not None:
                self._finish_at(stop)
                return
        self.token_ids += new_ids[num_read:]

    def _finish_as_engine(self, reason: FinishReason, stop_reason: int | str | None) -> None:
        stop = None
        if self._text is not None:
            stop = self._text.finish(search=reason in (FinishReason.STOP, FinishReason.LENGTH))
        if stop is not None:
            self._finish_at(stop)
            return
        self.finish_reason = str(reason)
        self.stop_reason = None if stop_reason in self._model_stop_token_ids else stop_reason

    def _finish_at(self, stop_string: str) -> None:
        self.finish_reason = str(FinishReason.STOP)
        self.stop_reason = stop_string

    def _read_prompt_logprobs(self, output: EngineCoreOutput) -> None:
        assert self._logprobs is not None
        if output.new_prompt_logprobs is not None:
            self.prompt_logprobs = self._logprobs.read_prompt(output.new_prompt_logprobs)
        elif output.new_token_ids:  # a prompt of one token has no row
            self.prompt_logprobs = [None]
