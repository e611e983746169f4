"""Programs that tests run in a process of their own, to be killed, forked and interrupted."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable

import anyio

from kernelserve.client.core_client import CoreClient
from kernelserve.protocol import EngineStatus
from tests.process.engines import launch, make_request


def say(text: object) -> None:
    """Tell the test."""
    print(text, flush=True)  # noqa: T201


async def idle(model: str = "fake", lifetime: str = "kernel") -> None:
    """Start an engine and hold it."""
    async with launch(model, lifetime=lifetime) as core:
        say(core.ready.pid)
        await anyio.sleep_forever()


async def load(model: str) -> None:
    """Say when the engine has begun to load."""

    def show(status: EngineStatus) -> None:
        if status.phase == "load weights":
            say("loading")

    async with launch(model, on_status=show):
        say("ready")


async def generate(model: str, lifetime: str = "kernel") -> None:
    """Run a long request and say when its first token is there."""
    async with launch(model, lifetime=lifetime) as core:
        await core.add_request(make_request("long", max_tokens=5000))
        await core.receive()
        say(core.ready.pid)
        while True:
            await core.receive()


async def attach(name: str) -> None:
    """Attach to an engine, run a long request and say when its first token is there."""
    async with CoreClient.attach(name) as core:
        await core.add_request(make_request("attached", max_tokens=5000))
        while True:
            outputs = await core.receive()
            if any(o.request_id == "attached" for o in outputs.outputs):
                say(core.ready.pid)
                break
        await anyio.sleep_forever()


def forked() -> None:
    """Start an engine in a thread of a program that uses fork, and leave a forked child behind."""
    multiprocessing.set_start_method("fork")

    def in_thread() -> None:
        anyio.run(idle)

    threading.Thread(target=in_thread, daemon=True).start()
    time.sleep(1.5)
    child = multiprocessing.Process(target=time.sleep, args=(60,))
    child.start()
    say(child.pid)
    time.sleep(60)


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    programs: dict[str, Callable[..., Awaitable[None]]] = {
        "idle": idle,
        "load": load,
        "generate": generate,
        "attach": attach,
    }
    if name == "forked":
        forked()
    else:
        anyio.run(programs[name], *arguments)
    os._exit(0)
