"""A set of requests that one caller waits for together, with a progress bar."""

from __future__ import annotations

import queue
import time
import warnings
from collections.abc import Callable
from typing import Any

from kernelserve.client.engine_session import EngineSession
from kernelserve.client.processed_request import ProcessedRequest
from kernelserve.errors import (
    BatchError,
    EngineError,
    EngineRequestError,
    InvalidRequestError,
    KernelserveError,
    RefusedBatchError,
)
from kernelserve.outputs import RequestOutput

__all__ = ["BatchRun", "RequestError"]

RequestError = InvalidRequestError | EngineRequestError
"""What ends one request and no other."""

_ABORT_WAIT_S = 2.0
_MIN_RATE_S = 0.5
"""What took less time has counts, no rates: those of a moment are noise."""
_BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
"""tqdm's own without its requests a second, which says as little."""


class BatchRun:
    """Sends FINAL_ONLY requests and collects their one output each. Used by one thread.

    A request that is refused here or fails in the engine is an error of its own: the others are answered, then it is
    raised. Only the end of the engine ends all of them.
    """

    def __init__(
        self,
        session: EngineSession,
        *,
        use_tqdm: bool,
        is_list: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Without `is_list` there is one request, whose error is raised as it is."""
        self._session = session
        self._use_tqdm = use_tqdm
        self._is_list = is_list
        self._clock = clock
        self._size = 0
        self._requests: dict[int, ProcessedRequest] = {}
        self._waiting: set[int] = set()
        self._arrived: queue.SimpleQueue[tuple[int, RequestOutput | Exception]] = (
            queue.SimpleQueue()
        )
        self._outputs: dict[int, RequestOutput] = {}
        self._errors: dict[int, RequestError] = {}

    @property
    def outputs(self) -> list[RequestOutput]:
        """Every output that there is, in order."""
        return [output for _, output in sorted(self._outputs.items())]

    def add(self, processed: ProcessedRequest) -> None:
        """Take the next request; nothing is sent before `complete`."""
        self._requests[self._size] = processed
        self._size += 1

    def refuse(self, error: RequestError) -> None:
        """Note that the next request cannot be sent. Raises the error if there is only this one."""
        if not self._is_list:
            raise error
        # A new one: the frames of the old one hold the images that it was about.
        self._errors[self._size] = type(error)(str(error))
        self._size += 1

    def complete(self) -> list[RequestOutput]:
        """Send all, wait for all, return the outputs in the order of `add`.

        Raises BatchError if some failed, what the engine raised if there is only one, EngineDeadError if it ended.
        """
        began = self._clock()  # an answer may be there before the bar
        self._waiting = set(self._requests)
        self._session.submit([(one, _Slot(i, self._arrived)) for i, one in self._requests.items()])
        bar = _progress_bar(self._size) if self._use_tqdm and self._requests else None
        try:
            self._collect(bar, began)
        except KernelserveError:
            self._post_abort()
            raise
        finally:
            if bar is not None:
                bar.close()
        if self._errors:
            raise self._error()
        return self.outputs

    def abort(self) -> list[RequestOutput]:
        """End what still runs. Returns every output there is: finished ones, and aborted ones with their text."""
        self._post_abort()
        deadline = time.monotonic() + _ABORT_WAIT_S
        while self._waiting and time.monotonic() < deadline:
            try:
                self._take(*self._arrived.get(timeout=deadline - time.monotonic()))
            except (queue.Empty, ValueError, EngineError):
                break
        return self.outputs

    def _post_abort(self) -> None:
        self._session.abort([request.internal_id for request in self._requests.values()])

    def _collect(self, bar: Any, began: float) -> None:
        num_in = num_out = 0
        while self._waiting:
            output = self._take(*self._arrived.get())
            if output is not None:
                num_in += len(output.prompt_token_ids)
                num_out += sum(len(completion.token_ids) for completion in output.outputs)
            if bar is not None:
                done = _progress(num_in, num_out, self._clock() - began)
                failed = f", {len(self._errors)} failed" if self._errors else ""
                bar.set_postfix_str(done + failed, refresh=False)
                bar.update(output is not None)

    def _take(self, index: int, result: RequestOutput | Exception) -> RequestOutput | None:
        """Enter what came of one request; return it if it is an answer. Raises what ends all of them."""
        self._waiting.discard(index)
        if isinstance(result, RequestOutput):
            self._outputs[index] = result
            return result
        if not isinstance(result, EngineRequestError):
            raise result
        self._errors[index] = result
        return None

    def _error(self) -> KernelserveError:
        """What `complete` raises of the requests that failed."""
        place, first = min(self._errors.items())
        if not self._is_list:
            return first
        refused = all(isinstance(error, InvalidRequestError) for error in self._errors.values())
        kind = RefusedBatchError if refused else BatchError
        which = f"at index {place}" if len(self._errors) == 1 else f"the first at index {place}"
        rest = "; the other answers are in `outputs` of this error" if self._outputs else ""
        return kind(
            f"{len(self._errors)} of {self._size} requests failed, {which}: {first}{rest}",
            errors=self._errors,
            outputs=[self._outputs.get(i) for i in range(self._size)],
        )


class _Slot:
    """Sink of one request: tells the waiting thread which one has arrived."""

    def __init__(
        self, index: int, arrived: queue.SimpleQueue[tuple[int, RequestOutput | Exception]]
    ) -> None:
        self._index = index
        self._arrived = arrived

    def put(self, output: RequestOutput) -> None:
        self._arrived.put((self._index, output))

    def fail(self, error: Exception) -> None:
        self._arrived.put((self._index, error))


def _progress(num_in: int, num_out: int, seconds: float) -> str:
    """Say how many tokens went in and came out, and in how much time if that is long enough."""
    if seconds < _MIN_RATE_S:
        return f"{num_in:,} tokens in, {num_out:,} out"
    return f"{num_in / seconds:,.0f} tok/s in, {num_out / seconds:,.0f} tok/s out"


def _progress_bar(total: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a notebook without ipywidgets gets a text bar
        from tqdm.auto import tqdm

        return tqdm(total=total, desc="Answers", bar_format=_BAR, dynamic_ncols=True, disable=None)
