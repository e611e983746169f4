"""A request as its caller sees it: n answers that become one stream of outputs."""

from __future__ import annotations

from typing import Protocol

from kernelserve.client.processed_request import ProcessedRequest
from kernelserve.client.request_state import RequestState
from kernelserve.client.request_timings import RequestTimings
from kernelserve.client.tokenizer import ClientTokenizer
from kernelserve.outputs import CompletionOutput, RequestMetrics, RequestOutput
from kernelserve.sampling_params import RequestOutputKind

__all__ = ["OutputSink", "ParentRequest"]


class OutputSink(Protocol):
    """Where the outputs of one request go. The sink owns what it is given and may change it."""

    def put(self, output: RequestOutput) -> None:
        """Take the next output; the last one is `finished`."""

    def fail(self, error: Exception) -> None:
        """Take the error that ends the request instead of a last output."""


class ParentRequest:
    """Turns the progress of its answers into outputs.

    Streams give one answer for each output, FINAL_ONLY one output with all answers by index. Only
    the output after which every answer has ended is `finished`.
    """

    def __init__(
        self,
        request: ProcessedRequest,
        tokenizer: ClientTokenizer | None,
        sink: OutputSink,
        now: float,
    ) -> None:
        self.request_id = request.request_id
        self.internal_id = request.internal_id
        self.sink = sink
        self.states = [
            RequestState(request, index, tokenizer, now) for index in range(request.params.n)
        ]
        self._num_unfinished = len(self.states)
        self._output_kind = request.params.output_kind
        self._prompt = request.prompt
        self._prompt_token_ids = request.prompt_token_ids.copy()
        self._prompt_logprobs_sent = False

    @property
    def unfinished_states(self) -> list[RequestState]:
        """Answers that have not ended."""
        return [state for state in self.states if not state.finished]

    def publish(self, state: RequestState) -> None:
        """Give the sink what is new about `state`, which may just have ended."""
        if state.finished:
            self._num_unfinished -= 1
        if self._output_kind is RequestOutputKind.DELTA:
            self.sink.put(self._make_output([state.take_delta()], state))
        elif self._output_kind is RequestOutputKind.CUMULATIVE:
            self.sink.put(self._make_output([state.completion()], state))
        elif not self._num_unfinished:
            completions = [answer.completion() for answer in self.states]
            self.sink.put(self._make_output(completions, self.states[0]))

    def _make_output(
        self, completions: list[CompletionOutput], state: RequestState
    ) -> RequestOutput:
        prompt_logprobs = self.states[0].prompt_logprobs
        if prompt_logprobs is not None:
            if self._output_kind is RequestOutputKind.DELTA:
                prompt_logprobs = None if self._prompt_logprobs_sent else prompt_logprobs
                self._prompt_logprobs_sent = True
            else:
                prompt_logprobs = prompt_logprobs.copy()
        return RequestOutput(
            self.request_id,
            self._prompt,
            self._prompt_token_ids,
            completions,
            not self._num_unfinished,
            prompt_logprobs,
            state.num_cached_tokens,
            self._metrics(state),
        )

    def _metrics(self, state: RequestState) -> RequestMetrics:
        if self._num_unfinished or len(self.states) == 1:
            return state.timings.to_metrics(len(state.token_ids))
        return RequestTimings.combine(
            answer.timings.to_metrics(len(answer.token_ids)) for answer in self.states
        )
