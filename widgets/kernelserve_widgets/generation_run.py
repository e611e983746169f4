"""One %%generate, from its submit to the static output that stays."""

from __future__ import annotations

import contextlib
import threading
import time

import kernelserve as ks
from kernelserve_widgets.flusher import Flusher
from kernelserve_widgets.result import Result
from kernelserve_widgets.views.answer_view import AnswerView
from kernelserve_widgets.waiting import wait_blocking, wait_for

__all__ = ["GenerationRun"]

_STREAM_INTERVAL_S = 0.08
_ABORT_WAIT_S = 1.0


class GenerationRun:
    """Takes what is new from the request to the result and to the view, a few times a second.

        client thread          flusher thread               the cell
        PendingRequest.put     flush: take, merge, update   complete: wait for the end
        ...                    flush                        interrupt -> abort -> wait for the end
        PendingRequest.done                                 last flush, static output, return or raise

    A run in the background has its last flush in the flusher thread. The end is shown exactly once.
    """

    min_interval_s = _STREAM_INTERVAL_S

    def __init__(
        self,
        pending: ks.PendingRequest,
        result: Result,
        view: AnswerView,
        flusher: Flusher,
    ) -> None:
        self.result = result
        self._pending = pending
        self._views = [view]
        self._flusher = flusher
        self._began = time.monotonic()
        self._showing = threading.RLock()

    def start(self) -> None:
        """Show the view in the cell that runs and begin to refresh it."""
        self._views[0].open()
        self._flusher.add(self)

    def stop(self) -> None:
        """End the request, from any thread: the button, the interrupt and %abort all come here."""
        self._pending.abort()

    def show_again(self, view: AnswerView) -> None:
        """Show it in the cell that runs now: what there is, and what comes."""
        view.open()
        with self._showing:
            if self.result.finished:
                view.finish(self.result)
                return
            view.update(self._everything(), self.counters())
            self._views.append(view)

    def complete(self) -> Result:
        """Block until the end. Raises what ended the run; on an interrupt the text so far is kept."""
        try:
            wait_blocking(self._pending.done)
        except KeyboardInterrupt:
            self.end()
            raise KeyboardInterrupt(self._stopped()) from None
        return self._show_end()

    async def complete_async(self) -> Result:
        """The same in an awaiting cell, where other messages, such as a click on Stop, are served meanwhile."""
        import asyncio

        try:
            await wait_for(self._pending.done)
        except (asyncio.CancelledError, KeyboardInterrupt):
            self.end()
            raise KeyboardInterrupt(self._stopped()) from None
        return self._show_end()

    def end(self) -> None:
        """Stop it and show the end, without awaiting anything. Does nothing to a run that has ended."""
        self.stop()
        wait_blocking(self._pending.done, _ABORT_WAIT_S)
        with contextlib.suppress(ks.KernelserveError):
            self._show_end()

    def finish_in_background(self) -> None:
        """Let the flusher show the end; nobody waits for it."""
        self._pending.done.add_done_callback(lambda _: self._flusher.add(self))

    def flush(self) -> bool:
        """Show what is new. False after the end was shown."""
        with self._showing:
            if self.result.finished:
                return False
            ended = self._pending.done.done()
            try:
                new = self._pending.take()
            except ks.KernelserveError as error:
                self._finish(error)
                return False
            self._update(new)
            if ended:
                self._finish(None)
            return not ended

    def counters(self) -> str:
        """Say in one line how it goes: the summary, or how long it has been waiting."""
        if not self.result.usage.num_generated_tokens and not self.result.finished:
            return f"waiting {time.monotonic() - self._began:.1f} s"
        return self.result.summary()

    def _show_end(self) -> Result:
        self._flusher.remove(self)
        if not self.result.finished:
            self._flusher.flush_now(self)
        if not self.result.finished:  # an engine that did not even take the abort
            self._finish(ks.EngineDeadError("the engine did not answer the abort in time"))
        if self.result.error is not None:
            raise self.result.error
        return self.result

    def _update(self, new: ks.RequestOutput | None) -> None:
        if new is not None:
            self.result.merge(new)
        counters = self.counters()
        for view in self._views:
            if new is None:
                view.heartbeat(counters)
            else:
                view.update(new, counters)

    def _finish(self, error: Exception | None) -> None:
        with self._showing:
            if self.result.finished:
                return
            if error is not None:
                self.result.fail(error)
            try:
                for view in self._views:
                    view.finish(self.result)
            finally:
                self._views.clear()
                self.result.finish()

    def _everything(self) -> ks.RequestOutput:
        result = self.result
        return ks.RequestOutput(
            result.request_id,
            result.prompt,
            result.prompt_token_ids,
            result.snapshot(),
            finished=False,
        )

    def _stopped(self) -> str:
        return f"{self.result.request_id} was stopped after {self.result.usage.num_generated_tokens} tokens"
