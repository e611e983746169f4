"""One request that runs while its caller does something else."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from kernelserve.client.engine_session import EngineSession
from kernelserve.client.mailbox import Mailbox
from kernelserve.client.processed_request import ProcessedRequest
from kernelserve.outputs import RequestOutput
from kernelserve.sampling_params import SamplingParams

__all__ = ["PendingRequest"]


class PendingRequest:
    """What `LLM.submit` returns: look at it whenever you like, from any thread.

        pending = llm.submit("Once upon a time")
        while not pending.done.done():
            if (new := pending.take()) is not None:
                print(new.text, end="")
            time.sleep(0.1)

    It runs to its end whether anybody looks or not; only `abort` ends it early.
    """

    def __init__(self, session: EngineSession, processed: ProcessedRequest) -> None:
        self._session = session
        self._processed = processed
        self._mailbox = Mailbox(delta=True)
        self.done: Future[None] = Future()
        """Completed, with no result and no error, when nothing more will come. Not to be cancelled."""

    @property
    def request_id(self) -> str:
        """The caller's id."""
        return self._processed.request_id

    @property
    def internal_id(self) -> str:
        """The id by which step records name it; with n > 1 they put `0_`, `1_`, ... before it."""
        return self._processed.internal_id

    @property
    def prompt(self) -> str | None:
        """The prompt as sent, None if it was given as token ids."""
        return self._processed.prompt

    @property
    def prompt_token_ids(self) -> list[int]:
        """The prompt as the model reads it."""
        return self._processed.prompt_token_ids

    @property
    def images(self) -> Sequence[Any]:
        """The images of the prompt, as they were given: with `prompt_token_ids` they make the same prompt again."""
        return self._processed.images

    @property
    def params(self) -> SamplingParams:
        """The sampling parameters in effect."""
        return self._processed.params

    def start(self) -> None:
        """Send it. Called once, by `LLM.submit`."""
        self._session.submit([(self._processed, self)])

    def take(self) -> RequestOutput | None:
        """Return all that is new since the last take as one output, None if nothing is.

        Raises the error that ended the request, after everything before it was taken.
        """
        return self._mailbox.take()

    def abort(self) -> None:
        """End it; a last output with the reason `abort` follows. Does nothing to one that has ended."""
        if not self.done.done():
            self._session.abort([self._processed.internal_id])

    def put(self, output: RequestOutput) -> None:
        """Called by the client thread with each output."""
        self._mailbox.put(output)
        if output.finished:
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        """Called by the client thread if the request ends without a last output."""
        self._mailbox.fail(error)
        self.done.set_result(None)
