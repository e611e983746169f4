"""`make bench-peers`: the environments of the engines we compare with, and the model in the form that each reads."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from kernelserve.bench.peer_environment import PeerEnvironment
from kernelserve.bench.peer_error import PeerError
from kernelserve.bench.peer_models import make_models
from kernelserve.bench.peer_recipes import RECIPES

__all__ = ["build_peer", "main"]

_BENCH = Path(__file__).parent
_TORCH = "torch==2.13.0"
_PREPARE = "import pathlib, sys; from peers.{} import prepare; prepare(pathlib.Path(sys.argv[1]))"


def main() -> int:
    """Build what the command line names; what is there already is kept."""
    parser = argparse.ArgumentParser(
        prog="python -m kernelserve.bench.build_peers", description=__doc__
    )
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"{', '.join(RECIPES)}; all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at once")
    arguments = parser.parse_args()
    failed = []
    for name in arguments.peers or RECIPES:
        try:
            build_peer(PeerEnvironment(name), arguments.jobs)
        except PeerError as error:
            failed.append(name)
            sys.stderr.write(f"bench-peers: {name}: {error}\n")
    return 1 if failed else 0


def build_peer(environment: PeerEnvironment, jobs: int) -> None:
    """Install one peer and make its models. Raises PeerError if a step fails."""
    if environment.is_built():
        print(f"== {environment.name}: is in {environment.folder}", flush=True)
        return
    started = time.monotonic()
    print(f"== {environment.name}: into {environment.folder}", flush=True)
    make_models(environment.models)
    _install(environment, jobs)
    variables = environment.variables()  # says what the process will lack, if anything
    if environment.recipe.prepares:
        command = [str(environment.python), "-c", _PREPARE.format(environment.name)]
        _run("making its model", [*command, str(environment.models)], variables, folder=_BENCH)
    environment.note_built()
    print(f"== {environment.name}: built in {time.monotonic() - started:.0f} s", flush=True)


def _install(environment: PeerEnvironment, jobs: int) -> None:
    """Make the virtual environment; torch first and pinned, so that no step replaces it with a CUDA build."""
    recipe = environment.recipe
    if not environment.python.exists():
        command = [sys.executable, "-m", "venv", str(environment.folder)]
        _run("making its environment", command, dict(os.environ))
    pip = [
        str(environment.python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    packages = list(recipe.packages)
    if recipe.from_source:
        pip += ["--no-binary", ",".join(recipe.from_source)]
        variables |= {"CMAKE_ARGS": _cmake_arguments(), "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs)}
    else:
        _run("installing torch", [*pip, _TORCH], variables)
        packages.append(_TORCH)
    _run("installing it", [*pip, *packages], variables)
    if recipe.unwanted:
        remove = [*pip[:3], "uninstall", "--quiet", "--yes", *recipe.unwanted]
        _run("removing what it does not need", remove, variables)


def _run(
    step: str, command: list[str], variables: dict[str, str], *, folder: Path | None = None
) -> None:
    code = subprocess.run(command, env=variables, cwd=folder, check=False).returncode
    if code:
        raise PeerError(f"{step} ended with {code}; its own words are above")


def _cmake_arguments() -> str:
    """For the processor at hand, but without AMX: llama.cpp's kernels for it (0.3.36) crashed where we tried them."""
    arguments = "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF"
    if "amx_int8" in Path("/proc/cpuinfo").read_text():
        without = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
        arguments += f" '-DCMAKE_C_FLAGS={without}' '-DCMAKE_CXX_FLAGS={without}'"
    return arguments


if __name__ == "__main__":
    sys.exit(main())
