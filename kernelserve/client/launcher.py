"""Starts engine processes."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
from pathlib import Path

import msgspec

from kernelserve.child_environment import child_environment
from kernelserve.client.engine_options import LaunchOptions
from kernelserve.client.engine_process import EngineProcess
from kernelserve.client.lifeline_pipe import LifelinePipe
from kernelserve.client.registry import (
    EngineDescriptor,
    config_hash,
    list_engines,
    modified_at,
    new_run_dir,
)
from kernelserve.config import EngineConfig
from kernelserve.paths import log_dir
from kernelserve.process_identity import process_start_time
from kernelserve.protocol import PROTOCOL_VERSION, LaunchSpec
from kernelserve.version import __version__

__all__ = ["launch_engine"]

_MAX_LOGS = 20
_SPIN_COUNT = "2000"
"""Torch's threads wait for each other at every operator. Spinning for as long as OpenMP does by default makes a
step ten times slower as soon as anything else, the notebook for one, wants a core; so little of it costs nothing
measurable."""


def launch_engine(config: EngineConfig, options: LaunchOptions) -> EngineProcess:
    """Start an engine and enter it into the registry, whose lock the caller holds. Does not wait for it.

    A new interpreter by exec, in its own session: the notebook's Stop does not reach it, nothing of the notebook's
    code runs in it, and it gets none of its streams.
    """
    engine_id, run_dir = new_run_dir()
    log_path = _new_log(engine_id)
    spec = LaunchSpec(
        protocol_version=PROTOCOL_VERSION,
        engine_id=engine_id,
        name=options.name,
        token=secrets.token_hex(16),
        run_dir=str(run_dir),
        config=config,
        lifetime=options.lifetime,
        linger_s=options.linger_s,
        idle_unload_s=options.idle_unload_s,
        owner_pid=os.getpid(),
        fake_model=options.fake_model,
        log_path=str(log_path),
    )
    pipe = LifelinePipe()
    popen = _spawn(pipe, log_path)
    pipe.close_read_end()
    # An engine that is gone already cannot read; the exit watch tells why.
    with contextlib.suppress(BrokenPipeError):
        pipe.send(msgspec.msgpack.encode(spec))
    descriptor = EngineDescriptor(
        engine_id=engine_id,
        name=options.name,
        pid=popen.pid,
        pid_start_time=process_start_time(popen.pid),
        run_dir=spec.run_dir,
        token=spec.token,
        model=config.model,
        config_hash=config_hash(config, fake_model=options.fake_model),
        version=__version__,
        protocol_version=PROTOCOL_VERSION,
        lifetime=options.lifetime,
        owner_pid=os.getpid(),
        owner_start_time=process_start_time(os.getpid()),
        log_path=spec.log_path,
    )
    descriptor.write()
    return EngineProcess(descriptor, popen, pipe)


def _spawn(pipe: LifelinePipe, log_path: Path) -> subprocess.Popen[bytes]:
    with log_path.open("ab") as log:
        return subprocess.Popen(
            # -P: a file named like a module in the notebook's folder must not be imported for it.
            [sys.executable, "-P", "-m", "kernelserve.engine"],
            stdin=pipe.read_fd,
            stdout=log,
            stderr=log,
            env=_environment(),
            start_new_session=True,
        )


def _environment() -> dict[str, str]:
    environment = child_environment()
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", _SPIN_COUNT)
    return environment


def _new_log(engine_id: str) -> Path:
    folder = log_dir()
    logs = sorted(folder.glob("engine-*.log"), key=modified_at)
    in_use = {descriptor.log_path for descriptor in list_engines()}
    for old in logs[: max(0, len(logs) - _MAX_LOGS + 1)]:
        if str(old.absolute()) not in in_use:
            old.unlink(missing_ok=True)
    path = folder / f"engine-{engine_id}.log"
    path.touch(mode=0o600)
    return path.absolute()
