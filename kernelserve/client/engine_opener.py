"""Finds the engine that was asked for, or starts it."""

from __future__ import annotations

import anyio

from kernelserve.client.engine_options import LaunchOptions
from kernelserve.client.engine_process import EngineProcess
from kernelserve.client.launcher import launch_engine
from kernelserve.client.registry import (
    EngineDescriptor,
    config_hash,
    find,
    list_engines,
    registry_lock,
)
from kernelserve.client.transport import ClientTransport
from kernelserve.config import EngineConfig
from kernelserve.errors import EngineDeadError, EngineStartError
from kernelserve.protocol import EngineReady, RequestType, UtilityReply, UtilityRequest

__all__ = ["find_engine", "open_engine"]

_MAX_TRIES = 3
_ANSWER_S = 5.0


def find_engine(name: str) -> EngineProcess:
    """Return the running engine with this name or id. Raises EngineDeadError with the names that there are."""
    found = find(name)
    if found is None:
        names = ", ".join(sorted({d.name for d in list_engines()})) or "none"
        raise EngineDeadError(f"no engine {name!r} runs (running: {names})")
    return EngineProcess(found)


async def open_engine(config: EngineConfig, options: LaunchOptions) -> EngineProcess:
    """Return the engine of this name with these settings, started if need be.

    An engine that is to outlive its kernel is looked for first. One of the same name with other settings is ended,
    unless somebody uses it: then this raises EngineStartError.
    """
    wanted = config_hash(config, fake_model=options.fake_model)
    for _ in range(_MAX_TRIES):
        with registry_lock():
            found = _find_shared(options.name) if options.lifetime != "kernel" else None
            if found is None:
                return launch_engine(config, options)
        if found.config_hash == wanted:
            return EngineProcess(found)
        await _retire(found, config)
    raise EngineStartError(f"the engine {options.name!r} of another process could not be replaced")


def _find_shared(name: str) -> EngineDescriptor | None:
    found = find(name)
    return found if found is not None and found.lifetime != "kernel" else None


async def _retire(found: EngineDescriptor, config: EngineConfig) -> None:
    """End an engine that nobody else is connected to."""
    process = EngineProcess(found)
    transport = ClientTransport(found)
    try:
        transport.say_hello()
        num_clients = await _count_clients(transport)
        if num_clients > 1:
            raise EngineStartError(
                f"the engine {found.name!r} (pid {found.pid}) runs {found.model!r} with other settings than asked for "
                f"{config.model!r}, and {num_clients - 1} other client(s) use it: choose another name, or attach to it"
            )
        transport.send(RequestType.UTILITY, UtilityRequest(1, "shutdown"))
        await process.end(patient=num_clients == 1)
    finally:
        transport.close(say_goodbye=process.watch.is_alive)
        process.close()


async def _count_clients(transport: ClientTransport) -> int:
    """Return the number of clients, us included; 0 if the engine does not answer."""
    with anyio.move_on_after(_ANSWER_S):
        while True:
            match await transport.receive():
                case EngineReady():
                    transport.send(RequestType.UTILITY, UtilityRequest(1, "ping"))
                case UtilityReply(output):
                    return int(output.result["clients"])
    return 0
