"""What `import kernelserve` costs a notebook kernel."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import Any

__all__ = ["measure_import"]

_RUNS = 5
_CODE = """
import json, resource, sys, time
def rss():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / 2**20
before, started, processor = rss(), time.perf_counter(), time.process_time()
import kernelserve
for name in kernelserve.__all__:
    getattr(kernelserve, name)
seconds, used = time.perf_counter() - started, time.process_time() - processor
print(json.dumps([seconds, before, rss(), "torch" in sys.modules, used]))
"""


def measure_import() -> dict[str, Any]:
    """Time and memory of the import with every public name used, in fresh interpreters."""
    runs = [json.loads(_fresh(_CODE)) for _ in range(_RUNS + 1)][1:]
    return {
        "bench": "import",
        "runs": len(runs),
        "import_s": round(statistics.median(run[0] for run in runs), 3),
        "cpu_s": round(statistics.median(run[4] for run in runs), 3),
        "worst_s": round(max(run[0] for run in runs), 3),
        "python_mb": round(statistics.median(run[1] for run in runs), 1),
        "rss_mb": round(statistics.median(run[2] for run in runs), 1),
        "torch_loaded": any(run[3] for run in runs),
    }


def _fresh(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout
