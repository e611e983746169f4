"""Command line: starts a Jupyter kernel, measures inside it, prints JSON lines."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from kernelserve.bench.machine import machine_facts
from kernelserve.config import DEFAULT_MODEL

_CELL = """\
import json
from kernelserve_widgets.bench.dashboard_cost import measure_dashboard
for line in measure_dashboard({model!r}, {options!r}, {pairs!r}):
    print(json.dumps(line), flush=True)
"""


def main() -> int:
    """Measure what an open dashboard costs the engine. Compare figures only with others of the same machine."""
    parser = argparse.ArgumentParser(
        prog="python -m kernelserve_widgets.bench", description=main.__doc__
    )
    parser.add_argument("--model", default=DEFAULT_MODEL, help="name, hub id, folder or .gguf file")
    parser.add_argument("--fake", action="store_true", help="the model is a fake one")
    parser.add_argument(
        "--pairs", type=int, default=11, help="batches without and with the dashboard"
    )
    arguments = parser.parse_args()
    options = {"fake_model": True} if arguments.fake else {}
    _say({"bench": "machine", "at": time.strftime("%Y-%m-%d %H:%M:%S")} | machine_facts())
    cell = _CELL.format(model=arguments.model, options=options, pairs=arguments.pairs)
    return _run_in_kernel(cell)


def _run_in_kernel(cell: str) -> int:
    """Run a cell as a notebook does, and pass on what it prints."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel()
    try:
        reply = client.execute_interactive(cell, output_hook=_pass_on, timeout=3600)
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    return 0 if reply["content"]["status"] == "ok" else 1


def _pass_on(message: dict[str, Any]) -> None:
    content = message["content"]
    if message["msg_type"] == "stream" and content["name"] == "stdout":
        sys.stdout.write(content["text"])
        sys.stdout.flush()
    elif message["msg_type"] == "error":
        sys.stderr.write(f"{content['ename']}: {content['evalue']}\n")


def _say(result: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
