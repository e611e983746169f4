"""Compiles the C++ kernels for this very machine, once, and keeps the library in the cache."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from kernelserve.errors import KernelBuildError
from kernelserve.paths import cache_dir, forget_unused, note_use

__all__ = ["build_library", "find_library"]

_SOURCES = Path(__file__).parent / "cpu"
_MAIN = "decoder.cpp"
_FLAGS = (
    "-std=gnu++20", "-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno",
    "-fno-trapping-math", "-fopenmp", "-fPIC", "-shared",
)  # fmt: skip
_COMPILERS = ("c++", "g++", "clang++")
_TIMEOUT_S = 300.0


def build_library() -> Path:
    """Return the library, compiled if the cache has none of these sources for this CPU and compiler.

    Takes some ten seconds the first time. Raises KernelBuildError if there is no compiler, or it fails.
    """
    compiler = _find_compiler()
    target = _target(compiler)
    if target.exists():
        note_use(target)
    else:
        _compile(compiler, target)
        forget_unused(target.parent, "cpu-*.so")
    return target


def find_library() -> Path | None:
    """Return the library if the cache has it. Raises KernelBuildError if there is no compiler."""
    target = _target(_find_compiler())
    return target if target.exists() else None


def _target(compiler: str) -> Path:
    version = _run([compiler, "--version"]).partition("\n")[0]
    return cache_dir() / "kernels" / f"cpu-{_digest(compiler, version)}.so"


def _find_compiler() -> str:
    chosen = os.environ.get("CXX")
    names = (chosen,) if chosen else _COMPILERS
    for name in names:
        if path := shutil.which(name):
            return path
    raise KernelBuildError(
        f"no C++ compiler: {', '.join(names)} not found. Install g++, or name one in CXX"
    )


def _digest(compiler: str, version: str) -> str:
    """Of all that decides what comes out."""
    digest = hashlib.sha256()
    for part in (*_FLAGS, compiler, version, platform.machine(), _cpu_features()):
        digest.update(part.encode() + b"\0")
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:24]


def _cpu_features() -> str:
    """What -march=native looks at: a home folder may be shared by machines that differ."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    wanted = ("flags", "features", "model name", "cpu part")
    return "\n".join(sorted({line for line in lines if line.lower().startswith(wanted)}))


def _compile(compiler: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as folder:
        made = Path(folder) / target.name
        _run([compiler, *_FLAGS, "-o", str(made), str(_SOURCES / _MAIN)])
        made.replace(target)  # whole or not at all, also when two engines build at once


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KernelBuildError(f"{command[0]} cannot be run: {error}") from error
    if done.returncode:
        first = done.stderr.strip().partition("\n")[0]
        raise KernelBuildError(f"{command[0]} ended with {done.returncode}: {first}")
    return done.stdout
