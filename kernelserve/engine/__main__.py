"""`python -m kernelserve.engine`: reads a LaunchSpec from standard input and serves."""

from __future__ import annotations

import faulthandler
import logging
import os
import struct
import sys

import msgspec

from kernelserve.engine.engine_process import EngineProcess
from kernelserve.errors import ProtocolError
from kernelserve.protocol import PROTOCOL_VERSION, LaunchSpec

_STDIN = 0
_LOGGER = logging.getLogger("kernelserve.engine")


def read_launch_spec(fd: int) -> LaunchSpec:
    """Read a 4-byte big-endian length and the spec. Raises ProtocolError if it is not one."""
    (size,) = struct.unpack(">I", _read_exactly(fd, 4))
    try:
        spec = msgspec.msgpack.decode(_read_exactly(fd, size), type=LaunchSpec)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"standard input does not hold a LaunchSpec: {error}") from error
    if spec.protocol_version != PROTOCOL_VERSION:
        raise ProtocolError(
            f"the engine speaks protocol version {PROTOCOL_VERSION}, "
            f"its launcher {spec.protocol_version}"
        )
    return spec


def main() -> int:
    """Run the engine; return the exit code."""
    faulthandler.enable()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    spec = read_launch_spec(_STDIN)
    _LOGGER.info("Engine %s (%s), pid %d", spec.engine_id, spec.name, os.getpid())
    return EngineProcess(spec).run(_STDIN)


def _read_exactly(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = os.read(fd, size - len(data))
        if not chunk:
            raise ProtocolError("standard input ended before the LaunchSpec")
        data += chunk
    return data


if __name__ == "__main__":
    exit_code = main()
    logging.shutdown()
    sys.stderr.flush()
    # Skips the destructors of native libraries: the memory goes back with the process anyway, and some hang.
    os._exit(exit_code)
