"""The outputs of one request as an async iterator that aborts the request when it is left early."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable

import anyio
import anyio.to_thread

from kernelserve.client.engine_session import EngineSession
from kernelserve.client.mailbox import Mailbox
from kernelserve.client.processed_request import ProcessedRequest
from kernelserve.client.wakeup import wait_for_future
from kernelserve.outputs import RequestOutput

__all__ = ["OutputStream"]

_INLINE_CHARS = 10_000
"""Prompts up to here are tokenized in a few milliseconds, less than a thread costs a busy loop."""
_Prepared = tuple[ProcessedRequest, Mailbox]


class OutputStream(AsyncIterator[RequestOutput]):
    """What `AsyncLLM.generate` returns. The request is sent by the first step of the iteration.

    However the iteration ends before the request does (break, aclose, cancellation, an error in the consumer, or the
    stream is dropped) the request is aborted. The abort is only posted to the client thread, in order behind the
    submit, so it needs no await and works in a cancelled task and in a finalizer.
    """

    def __init__(
        self,
        owner: object,
        open_session: Callable[[], EngineSession],
        prepare: Callable[[EngineSession], _Prepared],
        *,
        prompt_chars: int,
    ) -> None:
        self._owner = owner  # keeps the engine open while somebody iterates
        self._open_session = open_session
        self._prepare = prepare
        self._prompt_chars = prompt_chars
        self._mailbox: Mailbox | None = None
        self._abort: weakref.finalize[..., OutputStream] | None = None
        self._finished = False

    def __aiter__(self) -> OutputStream:
        return self

    async def __anext__(self) -> RequestOutput:
        if self._finished:
            raise StopAsyncIteration
        try:
            if self._mailbox is None:
                self._mailbox = await self._submit()
            output = await self._mailbox.get()
        except BaseException:
            self._end()
            raise
        if output.finished:
            self._finished = True
            if self._abort is not None:
                self._abort.detach()
        return output

    async def aclose(self) -> None:
        """Abort the request if it still runs. The stream is over afterwards."""
        self._end()

    async def _submit(self) -> Mailbox:
        session = self._open_session()
        await wait_for_future(session.when_started())
        processed, mailbox = await self._prepare_off_loop(session)
        # A finalizer of its own, which knows nothing of the stream: the request ends when the stream is collected.
        self._abort = weakref.finalize(self, session.abort, [processed.internal_id])
        self._abort.atexit = False  # by then the engine has been closed
        session.submit([(processed, mailbox)])
        return mailbox

    async def _prepare_off_loop(self, session: EngineSession) -> _Prepared:
        """Tokenizing megabytes takes seconds, in which other streams of this loop must go on."""
        if self._prompt_chars <= _INLINE_CHARS:
            return self._prepare(session)
        return await anyio.to_thread.run_sync(self._prepare, session, abandon_on_cancel=True)

    def _end(self) -> None:
        self._finished = True
        if self._abort is not None:
            self._abort()  # once: a finalizer that has run does nothing
