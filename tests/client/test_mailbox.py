"""The mailbox between the client thread and a consumer on asyncio, on trio, or in a plain thread."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import anyio
import pytest

from kernelserve.client.mailbox import Mailbox
from kernelserve.client.wakeup import wait_for_future
from kernelserve.errors import EngineDeadError
from kernelserve.outputs import CompletionOutput, RequestOutput

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


def _delta(text: str, *, finished: bool = False) -> RequestOutput:
    completion = CompletionOutput(0, text, [len(text)], finish_reason="stop" if finished else None)
    return RequestOutput("r", None, [], [completion], finished)


async def test_trap_29_a_slow_consumer_gets_fewer_and_larger_outputs():
    mailbox = Mailbox(delta=True)
    for letter in "abc":
        mailbox.put(_delta(letter))
    assert (await mailbox.get()).text == "abc"
    mailbox.put(_delta("d", finished=True))
    last = await mailbox.get()
    assert (last.text, last.finished) == ("d", True)


async def test_a_put_from_another_thread_wakes_the_consumer():
    mailbox = Mailbox(delta=True)
    text = "".join(chr(97 + i % 26) for i in range(500))

    def produce() -> None:
        for i, letter in enumerate(text):
            mailbox.put(_delta(letter, finished=i == len(text) - 1))

    producer = threading.Thread(target=produce)
    producer.start()
    received = ""
    finished = False
    with anyio.fail_after(10):
        while not finished:
            output = await mailbox.get()
            received += output.text
            finished = output.finished
    producer.join()
    assert received == text


async def test_an_error_is_raised_after_the_text_before_it():
    mailbox = Mailbox(delta=True)
    mailbox.put(_delta("a"))
    mailbox.fail(EngineDeadError("gone"))
    assert (await mailbox.get()).text == "a"
    with pytest.raises(EngineDeadError, match="gone"):
        await mailbox.get()


async def test_a_cancelled_get_loses_nothing():
    mailbox = Mailbox(delta=True)
    with anyio.move_on_after(0.02):
        await mailbox.get()
    mailbox.put(_delta("a"))
    assert (await mailbox.get()).text == "a"


async def test_a_future_of_another_thread_can_be_awaited():
    future: Future[int] = Future()
    timer = threading.Timer(0.02, future.set_result, [7])
    timer.start()
    with anyio.fail_after(5):
        assert await wait_for_future(future) == 7
    timer.join()


async def test_cancelling_the_wait_cancels_the_future():
    future: Future[int] = Future()
    with anyio.move_on_after(0.02):
        await wait_for_future(future)
    assert future.cancelled()


def test_a_plain_thread_can_wait():
    mailbox = Mailbox(delta=False)
    timer = threading.Timer(0.02, mailbox.put, [_delta("late")])
    timer.start()
    assert mailbox.get_blocking().text == "late"
    timer.join()
