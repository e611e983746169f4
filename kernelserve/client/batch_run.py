"""A set of requests that one caller waits for together, with a progress bar."""

from __future__ import annotations

import queue
import time
import warnings
from collections.abc import Callable
from typing import Any

from kernelserve.client.engine_session import EngineSession
from kernelserve.client.processed_request import ProcessedRequest
from kernelserve.errors import KernelserveError
from kernelserve.outputs import RequestOutput

__all__ = ["BatchRun"]

_ABORT_WAIT_S = 2.0
_MIN_RATE_S = 0.5
"""What took less time has counts, no rates: those of a moment are noise."""
_BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
"""tqdm's own without its requests a second, which says as little."""


class BatchRun:
    """Sends FINAL_ONLY requests and collects their one output each. Used by one thread."""

    def __init__(
        self,
        session: EngineSession,
        *,
        use_tqdm: bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._session = session
        self._use_tqdm = use_tqdm
        self._clock = clock
        self._requests: list[ProcessedRequest] = []
        self._arrived: queue.SimpleQueue[tuple[int, RequestOutput | Exception]] = (
            queue.SimpleQueue()
        )
        self._outputs: dict[int, RequestOutput] = {}

    def add(self, processed: ProcessedRequest) -> None:
        """Take a request; nothing is sent before `complete`."""
        self._requests.append(processed)

    def complete(self) -> list[RequestOutput]:
        """Send all, wait for all, return the outputs in the order of `add`. Raises what the engine raised."""
        began = self._clock()  # an answer may be there before the bar
        self._session.submit(
            [(request, _Slot(i, self._arrived)) for i, request in enumerate(self._requests)]
        )
        bar = _progress_bar(len(self._requests)) if self._use_tqdm and self._requests else None
        try:
            self._collect(bar, began)
        except KernelserveError:
            self._post_abort()
            raise
        finally:
            if bar is not None:
                bar.close()
        return [self._outputs[i] for i in range(len(self._requests))]

    def abort(self) -> list[RequestOutput]:
        """End what still runs. Returns every output there is: finished ones, and aborted ones with their text."""
        self._post_abort()
        deadline = time.monotonic() + _ABORT_WAIT_S
        while len(self._outputs) < len(self._requests) and time.monotonic() < deadline:
            try:
                index, result = self._arrived.get(timeout=deadline - time.monotonic())
            except (queue.Empty, ValueError):
                break
            if isinstance(result, RequestOutput):
                self._outputs[index] = result
        return [output for _, output in sorted(self._outputs.items())]

    def _post_abort(self) -> None:
        self._session.abort([request.internal_id for request in self._requests])

    def _collect(self, bar: Any, began: float) -> None:
        num_in = num_out = 0
        while len(self._outputs) < len(self._requests):
            index, result = self._arrived.get()
            if isinstance(result, Exception):
                raise result
            self._outputs[index] = result
            if bar is not None:
                num_in += len(result.prompt_token_ids)
                num_out += sum(len(completion.token_ids) for completion in result.outputs)
                done = _progress(num_in, num_out, self._clock() - began)
                bar.set_postfix_str(done, refresh=False)
                bar.update()


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
