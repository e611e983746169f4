"""OutputStream by itself: long prompts are tokenized elsewhere, and every way out aborts once."""

from __future__ import annotations

import gc
import threading
import time
from concurrent.futures import Future
from typing import Any

import anyio
import pytest

from kernelserve.client.mailbox import Mailbox
from kernelserve.client.output_stream import OutputStream
from kernelserve.client.processed_request import ProcessedRequest
from kernelserve.errors import InvalidRequestError
from kernelserve.outputs import CompletionOutput, RequestOutput
from kernelserve.sampling_params import SamplingParams

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


class Session:
    """An engine that answers each request with one output and remembers what was asked of it."""

    def __init__(self, *, answers: bool = True) -> None:
        self.submitted: list[str] = []
        self.aborted: list[str] = []
        self._answers = answers

    def when_started(self) -> Future[None]:
        started: Future[None] = Future()
        started.set_result(None)
        return started

    def submit(self, requests: Any) -> None:
        for processed, mailbox in requests:
            self.submitted.append(processed.internal_id)
            if self._answers:
                completion = CompletionOutput(0, "hi", [1], finish_reason="stop")
                mailbox.put(RequestOutput("r", "p", [1], [completion], True))

    def abort(self, ids: list[str]) -> None:
        self.aborted += ids


def _prepared(_session: Any) -> tuple[ProcessedRequest, Mailbox]:
    processed = ProcessedRequest(
        request_id="r",
        internal_id="r-1",
        prompt="p",
        prompt_token_ids=[1],
        params=SamplingParams(),
        model_stop_token_ids=frozenset(),
        arrival_time=0.0,
        requests=[],
    )
    return processed, Mailbox(delta=True)


def _stream(session: Session, prepare: Any = _prepared, *, prompt_chars: int = 10) -> OutputStream:
    return OutputStream(None, lambda: session, prepare, prompt_chars=prompt_chars)  # type: ignore[arg-type,return-value]


async def test_nothing_is_sent_before_the_first_step():
    session = Session()
    stream = _stream(session)
    assert session.submitted == []
    assert [output.text async for output in stream] == ["hi"]
    assert session.submitted == ["r-1"]


async def test_a_finished_request_is_not_aborted():
    session = Session()
    stream = _stream(session)
    async for _ in stream:
        pass
    await stream.aclose()
    del stream
    gc.collect()
    assert session.aborted == []


async def test_each_way_out_aborts_exactly_once():
    session = Session(answers=False)
    stream = _stream(session)
    with anyio.move_on_after(0.02):
        await anext(stream)
    await stream.aclose()
    del stream
    gc.collect()
    assert session.aborted == ["r-1"]


async def test_a_refused_request_raises_and_ends_the_stream():
    def refuse(_session: Any) -> Any:
        raise InvalidRequestError("no")

    stream = _stream(Session(), refuse)
    with pytest.raises(InvalidRequestError):
        await anext(stream)
    assert [output async for output in stream] == []


async def test_t42_tokenizing_a_long_prompt_leaves_the_loop_free():
    main = threading.get_ident()
    threads: list[int] = []

    def slow(session: Any) -> tuple[ProcessedRequest, Mailbox]:
        threads.append(threading.get_ident())
        time.sleep(0.2)
        return _prepared(session)

    ticks = 0
    async with anyio.create_task_group() as tasks:

        async def tick() -> None:
            nonlocal ticks
            while True:
                await anyio.sleep(0.01)
                ticks += 1

        tasks.start_soon(tick)
        async for _ in _stream(Session(), slow, prompt_chars=2_000_000):
            pass
        tasks.cancel_scope.cancel()
    assert threads != [main]
    assert ticks >= 5
