"""Command line of the measurements: one JSON line for each result, the machine first."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import anyio

from kernelserve.bench.against import measure_against
from kernelserve.bench.client_cost import measure_client
from kernelserve.bench.comparison import render
from kernelserve.bench.import_cost import measure_import
from kernelserve.bench.ipc_cost import measure_ipc
from kernelserve.bench.machine import machine_facts
from kernelserve.bench.peer_recipes import RECIPES
from kernelserve.bench.quality import measure_quality
from kernelserve.bench.scheduler_cost import measure_scheduler
from kernelserve.bench.serving import measure_cold_start, measure_serving
from kernelserve.bench.workloads import WORKLOADS
from kernelserve.client.engine_options import EngineOptions
from kernelserve.config import DEFAULT_MODEL
from kernelserve.errors import KernelserveError

BENCHES = WORKLOADS | {
    "engine": "schedule and update of a step: 1, 64, 256 running, 0 and 10,000 waiting; no model",
    "client": "a token in the client: the processing alone, and from the engine's socket to its reader",
    "ipc": "round trips and streams between notebook and engine, with a model that takes no time",
    "quality": "perplexity, and distance of the model's distributions to transformers in float32",
    "import": "time and memory of `import kernelserve`",
}


def main() -> int:
    """Measure what the command line names. Compare figures only with others of the same machine."""
    arguments = _parse(sys.argv[1:])
    lines: list[dict[str, Any]] = []
    failed = ""
    try:
        anyio.run(_report, arguments, lines)
    except KernelserveError as error:
        failed = f"kernelserve.bench: {error}\n"
    finally:
        if arguments.json:
            arguments.json.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if any("player" in line for line in lines):
        print("", render(lines), sep="\n")
    sys.stderr.write(failed)
    return 1 if failed or any("error" in line for line in lines) else 0


async def _report(arguments: argparse.Namespace, lines: list[dict[str, Any]]) -> None:
    async for line in _measure(arguments):
        lines.append(line)
        print(json.dumps(line), flush=True)


async def _measure(arguments: argparse.Namespace) -> AsyncIterator[dict[str, Any]]:
    model, options, repetitions = arguments.model, arguments.options, arguments.reps
    yield {"bench": "machine", "at": time.strftime("%Y-%m-%d %H:%M:%S")} | machine_facts()
    if arguments.against:
        async for result in measure_against(
            arguments.against, arguments.benches, options, repetitions
        ):
            yield result
        return
    for name in arguments.benches:
        match name:
            case "engine":
                for result in measure_scheduler():
                    yield result
            case "client":
                async for result in measure_client(model, options):
                    yield result
            case "ipc":
                async for result in measure_ipc():
                    yield result
            case "quality":
                for result in measure_quality(model, dict(options)):
                    yield result
            case "import":
                yield measure_import()
            case "w5":
                for result in measure_cold_start(model, options, repetitions):
                    yield result
            case _:
                async for result in measure_serving(name, model, options, repetitions):
                    yield result


def _parse(argv: list[str]) -> argparse.Namespace:
    listing = "\n".join(f"  {name:7} {text}" for name, text in BENCHES.items())
    parser = argparse.ArgumentParser(
        prog="python -m kernelserve.bench",
        description=f"Measures kernelserve; prints JSON lines.\n\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "benches", nargs="*", metavar="BENCH", help="what to measure; all if none is named"
    )
    parser.add_argument("--model", default=DEFAULT_MODEL, help="name, hub id, folder or .gguf file")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an engine option, as dtype=float32",
    )
    parser.add_argument("--reps", type=int, default=3, help="counted repetitions of a workload")
    parser.add_argument(
        "--against",
        type=lambda names: names.split(","),
        default=[],
        metavar="PEER,...",
        help=f"measure w1 to w5 in turn with {', '.join(RECIPES)}; also NAME:VARIANT, as openvino:fp16",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the lines to FILE")
    arguments = parser.parse_args(argv)
    unknown = set(arguments.benches) - set(BENCHES)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}; choose from {', '.join(BENCHES)}")
    if arguments.against:
        _check_against(parser, arguments)
    arguments.benches = arguments.benches or list(WORKLOADS if arguments.against else BENCHES)
    arguments.options = _engine_options(arguments.option)
    return arguments


def _check_against(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    if others := set(arguments.benches) - set(WORKLOADS):
        parser.error(f"{', '.join(sorted(others))} has no peer; choose from {', '.join(WORKLOADS)}")
    if arguments.model != DEFAULT_MODEL:
        parser.error(f"the peers' models are made from {DEFAULT_MODEL}: --against takes no --model")


def _engine_options(pairs: list[str]) -> EngineOptions:
    """Read `name=value`; a value is JSON if it can be, else text."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            options[name] = json.loads(value)
        except json.JSONDecodeError:
            options[name] = value
    return cast("EngineOptions", options)


if __name__ == "__main__":
    sys.exit(main())
