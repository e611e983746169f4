"""Which engines of this user run on this machine: one folder an engine in the runtime folder."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kernelserve.config import EngineConfig, Lifetime
from kernelserve.errors import InvalidConfigError
from kernelserve.paths import runtime_dir
from kernelserve.process_identity import is_process_alive

__all__ = [
    "EngineDescriptor",
    "config_hash",
    "find",
    "list_engines",
    "modified_at",
    "new_run_dir",
    "registry_lock",
]

_PREFIX = "e-"
_DESCRIPTOR = "engine.json"
_MAX_SOCKET_PATH = 100
"""Of 107 bytes on Linux and 103 on macOS."""


class EngineDescriptor(msgspec.Struct, kw_only=True, frozen=True):
    """What another process needs to find and reach an engine. Holds its token: readable by its owner only."""

    engine_id: str
    name: str
    pid: int
    pid_start_time: float
    run_dir: str
    token: str
    model: str
    config_hash: str
    version: str
    protocol_version: int
    lifetime: Lifetime
    owner_pid: int
    log_path: str
    owner_start_time: float = 0.0

    def __repr__(self) -> str:
        return f"<engine {self.name!r} ({self.engine_id}): {self.model}, {self.lifetime}, pid {self.pid}>"

    @property
    def address(self) -> str:
        """The engine's input socket."""
        return f"ipc://{self.run_dir}/in.sock"

    @property
    def is_alive(self) -> bool:
        """Whether the process that it describes still runs."""
        return is_process_alive(self.pid, self.pid_start_time)

    @property
    def owner_is_alive(self) -> bool:
        """Whether the process that has started it still runs."""
        return is_process_alive(self.owner_pid, self.owner_start_time)

    def write(self) -> None:
        """Put it into its run directory, at once and as a whole."""
        path = Path(self.run_dir) / _DESCRIPTOR
        draft = path.with_suffix(".tmp")
        draft.touch(mode=0o600)
        draft.write_bytes(msgspec.json.encode(self))
        draft.replace(path)


def config_hash(config: EngineConfig, *, fake_model: bool = False) -> str:
    """Return a short name of the settings: equal settings, equal names."""
    data = msgspec.json.encode([config, fake_model], order="sorted")
    return hashlib.sha256(data).hexdigest()[:16]


def list_engines() -> list[EngineDescriptor]:
    """Return the engines that run, oldest first."""
    found = [
        (modified_at(directory), descriptor)
        for directory in _run_dirs()
        if (descriptor := _read(directory)) is not None and descriptor.is_alive
    ]
    return [descriptor for _, descriptor in sorted(found, key=lambda entry: entry[0])]


def find(name: str) -> EngineDescriptor | None:
    """Return the engine with this name or id. One that is meant to be shared goes before one that is not."""
    matching = [d for d in list_engines() if name in (d.name, d.engine_id)]
    matching.sort(key=lambda d: d.lifetime != "kernel")
    return matching[-1] if matching else None


@contextlib.contextmanager
def registry_lock() -> Iterator[None]:
    """Hold the registry while an engine is entered. Left-overs of dead engines are removed first."""
    with (runtime_dir() / "registry.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for directory in _run_dirs():
            descriptor = _read(directory)
            # Entries are made under the lock: one without a descriptor was given up half made.
            if descriptor is None or not descriptor.is_alive:
                shutil.rmtree(directory, ignore_errors=True)
        yield


def new_run_dir() -> tuple[str, Path]:
    """Make the folder of a new engine; return its id and the folder. Call it under the lock."""
    engine_id = secrets.token_hex(4)
    path = runtime_dir().absolute() / f"{_PREFIX}{engine_id}"
    if len(os.fsencode(path)) + len("/c-00000000.sock") > _MAX_SOCKET_PATH:
        raise InvalidConfigError(
            f"{path} is too long for the path of a socket: set KERNELSERVE_RUNTIME_DIR to a shorter one"
        )
    path.mkdir(mode=0o700)
    return engine_id, path


def modified_at(path: Path) -> float:
    """Return when `path` was changed last, in seconds; 0 if somebody has removed it meanwhile."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _run_dirs() -> list[Path]:
    return [path for path in runtime_dir().absolute().glob(f"{_PREFIX}*") if path.is_dir()]


def _read(directory: Path) -> EngineDescriptor | None:
    try:
        return msgspec.json.decode((directory / _DESCRIPTOR).read_bytes(), type=EngineDescriptor)
    except (OSError, msgspec.DecodeError):
        return None
