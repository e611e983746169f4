"""A19: nothing of a request outlives the request."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.process, pytest.mark.notebook, pytest.mark.timeout(180)]

LOAD = """
import asyncio, json
from pathlib import Path
def memory(pid):
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return sum(int(lines[k].split()[0]) for k in ("RssAnon", "VmSwap")) // 1024
engine = ks.AsyncLLM("fake", fake_model=True)
ready = await engine.start()
async def one(i):
    params = ks.SamplingParams(
        max_tokens=8, detokenize=False, n=3 if i % 10 == 0 else 1, output_kind=ks.RequestOutputKind.DELTA, logprobs=2,
    )
    async for _ in engine.generate([i % 900, 7, i % 31], params):
        if i % 3 == 0:
            break
async def many(first, last):
    for start in range(first, last, 50):
        await asyncio.gather(*[one(i) for i in range(start, start + 50)])
    await asyncio.sleep(0.3)
"""


def test_a19_five_thousand_requests_a_third_of_them_aborted(kernel):
    kernel.ok(LOAD)
    kernel.ok("await many(0, 500)")
    before = json.loads(kernel.ok("print(json.dumps([memory(os.getpid()), memory(ready.pid)]))"))
    kernel.ok("await many(500, 5000)", timeout=150)
    after = json.loads(kernel.ok("print(json.dumps([memory(os.getpid()), memory(ready.pid)]))"))
    assert after[0] - before[0] < 20, "the kernel grew by this many MiB"
    assert after[1] - before[1] < 20, "the engine grew by this many MiB"
    shown = kernel.ok(
        "s = await engine.stats(); print(s.num_running_reqs, s.num_waiting_reqs, s.num_used_blocks)"
    )
    assert shown == "0 0 0"
    kernel.ok("await engine.aclose()")
