"""Takes the outputs of the engine to the requests that they belong to."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kernelserve.client.parent_request import OutputSink, ParentRequest
from kernelserve.client.processed_request import ProcessedRequest
from kernelserve.client.request_state import RequestState
from kernelserve.client.tokenizer import ClientTokenizer
from kernelserve.errors import EngineRequestError
from kernelserve.protocol import EngineCoreOutput, EngineCoreOutputs, FinishReason

__all__ = ["OutputProcessor", "OutputSink"]

logger = logging.getLogger(__name__)


class OutputProcessor:
    """The table of live requests of one client. Used by one thread.

    A request is added before it is sent, so its first token cannot come too early. It leaves the
    table with its last output; what the engine says later about it is ignored. Each sink gets
    either one finished output, last, or one error.
    """

    def __init__(self, tokenizer: ClientTokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._states: dict[str, tuple[RequestState, ParentRequest]] = {}
        self._parents: dict[str, ParentRequest] = {}
        self._by_request_id: dict[str, list[ParentRequest]] = {}

    @property
    def has_unfinished(self) -> bool:
        """Whether any request waits for its last output."""
        return bool(self._parents)

    @property
    def num_unfinished_requests(self) -> int:
        """Requests that wait for their last output."""
        return len(self._parents)

    def add_request(self, processed: ProcessedRequest, sink: OutputSink, now: float) -> None:
        """Register a request; `now` and all later ones are of one monotonic clock."""
        parent = ParentRequest(processed, self._tokenizer, sink, now)
        assert parent.internal_id not in self._parents
        self._parents[parent.internal_id] = parent
        self._by_request_id.setdefault(parent.request_id, []).append(parent)
        for state in parent.states:
            self._states[state.internal_id] = (state, parent)

    def process_outputs(self, outputs: EngineCoreOutputs, now: float) -> list[str]:
        """Give each request its part. Returns the ids that the engine must now abort."""
        to_abort: list[str] = []
        for output in outputs.outputs:
            found = self._states.get(output.request_id)
            if found is not None:
                to_abort += self._process(output, *found, now=now, engine_time=outputs.timestamp)
        return to_abort

    def abort_requests(self, request_ids: Iterable[str], now: float | None = None) -> list[str]:
        """End requests by the caller's id, all that share it, or by an internal one.

        Their last outputs are made here, with the text so far. Ids that are unknown or have ended
        are ignored. Returns the ids that the engine must abort.
        """
        aborted: list[str] = []
        for request_id in request_ids:
            for state, parent in self._find(request_id):
                state.abort(now)
                self._remove(state, parent)
                parent.publish(state)
                aborted.append(state.internal_id)
        return aborted

    def fail_all(self, error: Exception) -> None:
        """End every request with `error`."""
        parents = list(self._parents.values())
        self._states.clear()
        self._parents.clear()
        self._by_request_id.clear()
        for parent in parents:
            parent.sink.fail(error)

    def _process(
        self,
        output: EngineCoreOutput,
        state: RequestState,
        parent: ParentRequest,
        *,
        now: float,
        engine_time: float,
    ) -> list[str]:
        if output.finish_reason is FinishReason.ERROR:
            return self._fail(parent, output, str(output.stop_reason or "no reason given"))
        try:
            state.update(output, now=now, engine_time=engine_time)
        except Exception as error:  # one bad request must not harm the others
            logger.exception("The output of request %s cannot be processed", parent.request_id)
            return self._fail(parent, output, repr(error))
        if state.finished:
            self._remove(state, parent)
        elif not output.new_token_ids:
            return []
        parent.publish(state)
        return [state.internal_id] if state.finished and not output.finished else []

    def _find(self, request_id: str) -> list[tuple[RequestState, ParentRequest]]:
        if request_id in self._parents:
            parents = [self._parents[request_id]]
        elif request_id in self._states:
            return [self._states[request_id]]
        else:
            parents = list(self._by_request_id.get(request_id, ()))
        return [(state, parent) for parent in parents for state in parent.unfinished_states]

    def _fail(self, parent: ParentRequest, output: EngineCoreOutput, reason: str) -> list[str]:
        """End the whole request of one answer. Returns the answers that the engine still runs."""
        unfinished = [state.internal_id for state in parent.unfinished_states]
        for internal_id in unfinished:
            del self._states[internal_id]
        self._forget(parent)
        parent.sink.fail(EngineRequestError(f"request {parent.request_id} failed: {reason}"))
        return [i for i in unfinished if i != output.request_id or not output.finished]

    def _remove(self, state: RequestState, parent: ParentRequest) -> None:
        del self._states[state.internal_id]
        if not parent.unfinished_states:
            self._forget(parent)

    def _forget(self, parent: ParentRequest) -> None:
        del self._parents[parent.internal_id]
        namesakes = self._by_request_id[parent.request_id]
        namesakes.remove(parent)
        if not namesakes:
            del self._by_request_id[parent.request_id]
