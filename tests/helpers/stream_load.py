"""Measures user-needs C5 in a real kernel: many streams and a dashboard for a minute.

python -m tests.helpers.stream_load [--streams 16] [--seconds 60]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.helpers.front_end import FrontEnd
from tests.helpers.kernel import start_kernel
from tests.helpers.tokenizers import fake_model_that_speaks

__all__ = ["measure_stream_load"]

_TOKENS_PER_S = 100


def measure_stream_load(num_streams: int, seconds: float) -> dict[str, float]:
    """Return messages and bytes a second on iopub, the cores that the kernel used, how many texts were complete."""
    with tempfile.TemporaryDirectory() as folder:
        model = fake_model_that_speaks(Path(folder) / "tokenizer", step_seconds=1 / _TOKENS_PER_S)
        with start_kernel(KERNELSERVE_RUNTIME_DIR=f"{folder}/rt") as kernel:
            front = FrontEnd(kernel)
            front.ok(f"%load_ext kernelserve\n%serve {model} --fake-model")
            front.ok("%dashboard")
            num_tokens = int((seconds + 10) * _TOKENS_PER_S)
            cells = [
                front.run(
                    f"%%generate -b -o v{i} --raw --ignore-eos --max-tokens {num_tokens}\nnumber {i}"
                )
                for i in range(num_streams)
            ]
            front.listen(2)
            counts, cpu, began = (
                (front.num_messages, front.num_bytes),
                _cpu_s(kernel.pid),
                time.monotonic(),
            )
            front.listen(seconds)
            elapsed = time.monotonic() - began
            figures = {
                "streams": num_streams,
                "seconds": elapsed,
                "messages_per_s": (front.num_messages - counts[0]) / elapsed,
                "kB_per_s": (front.num_bytes - counts[1]) / elapsed / 1000,
                "kernel_cores": (_cpu_s(kernel.pid) - cpu) / elapsed,
            }
            front.wait(lambda: not any(cell.widgets for cell in cells), timeout=120)
            for i, cell in enumerate(cells):
                text, count = eval(front.ok(f"print((v{i}.wait().text, len(v{i}.token_ids)))"))
                figures["complete"] = figures.get("complete", 0) + (
                    text in cell.text and count == num_tokens
                )
            return figures


def _cpu_s(pid: int) -> float:
    """User and system time of a process, all threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m tests.helpers.stream_load"
    )
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    sys.stdout.write(json.dumps(measure_stream_load(arguments.streams, arguments.seconds)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
