"""A9, A10: Stop ends the call it is meant for, quickly, every time, and nothing else."""

from __future__ import annotations

import time

import pytest

from tests.helpers.kernel import on_both_ipykernels
from tests.helpers.leftovers import engine_pids, wait_until

pytestmark = [pytest.mark.process, pytest.mark.notebook, on_both_ipykernels]

PARAMS = "ks.SamplingParams(max_tokens=4000, detokenize=False)"
SETUP = """
llm = ks.LLM("fake:step_seconds=0.01", fake_model=True, show_progress=False,
             max_num_seqs=4, max_num_batched_tokens=64, num_gpu_blocks=2048)
short = ks.SamplingParams(max_tokens=4, detokenize=False)
want = llm.generate([5, 6, 7], short, use_tqdm=False)[0].outputs[0].token_ids
def check():
    got = llm.generate([5, 6, 7], short, use_tqdm=False)[0].outputs[0].token_ids
    stats = llm.stats()
    assert got == want, got
    assert (stats.num_running_reqs, stats.num_waiting_reqs, stats.num_used_blocks) == (0, 0, 0), stats
"""
MOMENTS = {
    "queued": f"llm.generate([[1, 2, i] for i in range(40)], {PARAMS}, use_tqdm=False)",
    "prefill": f"llm.generate([list(range(10, 900)) * 8], {PARAMS}, use_tqdm=False)",
    "decode": f"llm.generate([[1, 2, 3]], {PARAMS}, use_tqdm=False)",
    "stream": "for piece in llm.stream([1, 2, 3], ks.SamplingParams(max_tokens=4000, detokenize=False)): pass",
}


def in_time(took: float, usual: float) -> bool:
    """A second, and more where even a short cell needs long because the machine is busy with other things."""
    return took < 1 + 5 * usual


def seconds_of_a_check(kernel) -> float:
    """Fail unless the engine is at rest and answers. Returns what a request and an error take now."""
    kernel.ok("check()")
    began = time.monotonic()
    kernel.run("check(); 1 / 0")
    return time.monotonic() - began


def test_a9_twenty_interrupts_at_four_moments(kernel):
    kernel.ok(SETUP)
    kernel.run("1 / 0")  # the first traceback of a kernel takes imports
    usual = seconds_of_a_check(kernel)
    for round_number in range(20):
        moment = list(MOMENTS)[round_number % 4]
        cell = kernel.submit(f"print('go')\n{MOMENTS[moment]}")
        kernel.wait_for_text(cell, "go")
        time.sleep(0.05 + 0.01 * round_number)
        began = time.monotonic()
        kernel.interrupt()
        result = kernel.finish(cell, timeout=10)
        took = time.monotonic() - began
        assert in_time(took, usual), f"round {round_number}, {moment}: {took} s"
        assert result.error is not None
        assert result.error.startswith("KeyboardInterrupt"), f"{moment}: {result.error}"
        usual = seconds_of_a_check(kernel)
    kernel.ok("llm.close()")


def test_a9_the_partial_outputs_are_kept(kernel):
    kernel.ok(SETUP)
    cell = kernel.submit(f"print('go')\n{MOMENTS['decode']}")
    kernel.wait_for_text(cell, "go")
    time.sleep(0.3)
    kernel.interrupt()
    assert (kernel.finish(cell).error or "").startswith("KeyboardInterrupt")
    shown = kernel.ok(
        "o = llm.partial_outputs[0].outputs[0]; print(o.finish_reason, len(o.token_ids) > 3)"
    )
    assert shown == "abort True"
    kernel.ok("llm.close()")


def test_a9_interrupt_of_an_awaited_stream(kernel):
    kernel.ok(SETUP)
    usual = seconds_of_a_check(kernel)
    code = f"""
engine = ks.AsyncLLM("fake:step_seconds=0.01", fake_model=True, name="second")
await engine.start()
print("go")
try:
    async for out in engine.generate([1, 2, 3], {PARAMS}):
        pass
finally:
    ended = time.time()
"""
    cell = kernel.submit(code)
    kernel.wait_for_text(cell, "go")
    time.sleep(0.2)
    began = time.time()
    kernel.interrupt()
    result = kernel.finish(cell, timeout=30)
    # To draw its traceback through many frames takes IPython longer than the end itself.
    assert in_time(float(kernel.ok("print(ended)")) - began, usual)
    assert result.error is not None
    running = kernel.ok("time.sleep(0.2); print((await engine.stats()).num_running_reqs)")
    assert running == "0"
    kernel.ok("await engine.aclose(); llm.close()")


def test_a10_interrupting_another_cell_leaves_a_background_stream_alone(kernel, runtime_folder):
    kernel.ok(SETUP)
    kernel.ok(
        """
import threading
texts = []
def work():
    texts.append(llm.generate([1, 2, 3], ks.SamplingParams(max_tokens=150, detokenize=False), use_tqdm=False))
thread = threading.Thread(target=work)
thread.start()
"""
    )
    (engine,) = engine_pids(runtime_folder)
    cell = kernel.submit("print('go')\ntime.sleep(30)")
    kernel.wait_for_text(cell, "go")
    kernel.interrupt()
    assert (kernel.finish(cell).error or "").startswith("KeyboardInterrupt")
    shown = kernel.ok(
        "thread.join(); o = texts[0][0].outputs[0]; print(o.finish_reason, len(o.token_ids))"
    )
    assert shown == "length 150"
    assert engine_pids(runtime_folder) == [engine]
    kernel.ok("llm.close()")


def test_an_interrupt_ends_a_start(kernel, runtime_folder):
    cell = kernel.submit("print('go')\nks.LLM('fake:start_seconds=60', fake_model=True)")
    kernel.wait_for_text(cell, "go")
    wait_until(lambda: bool(engine_pids(runtime_folder)), "no engine was started", timeout=10)
    kernel.interrupt()
    assert (kernel.finish(cell, timeout=15).error or "").startswith("KeyboardInterrupt")
    wait_until(
        lambda: not engine_pids(runtime_folder), "the half-started engine is left", timeout=8
    )
