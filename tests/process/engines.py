"""Engines with a fake model, for the process tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from kernelserve.client.core_client import CoreClient
from kernelserve.client.engine_options import LaunchOptions
from kernelserve.config import EngineConfig
from kernelserve.errors import EngineDeadError
from kernelserve.protocol import EngineCoreOutput, EngineCoreRequest, EngineStatus
from kernelserve.sampling_params import SamplingParams

__all__ = [
    "collect",
    "launch",
    "make_request",
    "mode_of",
    "read_text",
    "run_request",
    "wait_for_death",
]


def launch(
    model: str = "fake",
    *,
    on_status: Callable[[EngineStatus], None] | None = None,
    config: dict[str, Any] | None = None,
    **options: Any,
) -> CoreClient:
    """Make a client of a new engine with a fake model."""
    launch_options = LaunchOptions(fake_model=True, **options)
    return CoreClient.launch(
        EngineConfig(model=model, **(config or {})), launch_options, on_status=on_status
    )


def make_request(request_id: str, *, max_tokens: int = 4, prompt: int = 5) -> EngineCoreRequest:
    """Make a greedy request."""
    params = SamplingParams(temperature=0, max_tokens=max_tokens, detokenize=False)
    return EngineCoreRequest(request_id, list(range(10, 10 + prompt)), params, time.time())


async def collect(core: CoreClient, request_id: str) -> list[EngineCoreOutput]:
    """Return the outputs of a request until it has ended."""
    found: list[EngineCoreOutput] = []
    with anyio.fail_after(10):
        while not found or not found[-1].finished:
            outputs = (await core.receive()).outputs
            found += [output for output in outputs if output.request_id == request_id]
    return found


async def run_request(core: CoreClient, request_id: str, **details: Any) -> list[int]:
    """Send a request and return its tokens."""
    await core.add_request(make_request(request_id, **details))
    return [t for output in await collect(core, request_id) for t in output.new_token_ids]


async def wait_for_death(
    core: CoreClient, outputs: list[EngineCoreOutput] | None = None
) -> EngineDeadError:
    """Receive until the engine is dead; return the error. `outputs` takes what came before."""
    received = [] if outputs is None else outputs
    try:
        with anyio.fail_after(10):
            while True:
                received += (await core.receive()).outputs
    except EngineDeadError as error:
        return error


def read_text(path: str) -> str:
    """Return what is in a file."""
    return Path(path).read_text(errors="replace")


def mode_of(path: Path | str) -> int:
    """Return the permissions of a file."""
    return Path(path).stat().st_mode & 0o777
