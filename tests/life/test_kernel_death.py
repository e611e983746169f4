"""A2, A18: an engine ends with its kernel, whatever ends the kernel."""

from __future__ import annotations

import pytest

from tests.helpers.leftovers import engine_pids, wait_until

pytestmark = [pytest.mark.process, pytest.mark.notebook]

START = "llm = ks.LLM('fake:step_seconds=0.02', fake_model=True, show_progress=False)"
LONG_REQUEST = """
params = ks.SamplingParams(max_tokens=4000, detokenize=False)
print("running")
llm.generate([1, 2, 3], params, use_tqdm=False)
"""


def _wait_for_engine(folder) -> int:
    wait_until(lambda: bool(engine_pids(folder)), "no engine was started", timeout=20)
    (pid,) = engine_pids(folder)
    return pid


def test_a2_restart_of_the_kernel(kernel, runtime_folder):
    kernel.ok(START)
    _wait_for_engine(runtime_folder)
    kernel.restart()
    wait_until(lambda: not engine_pids(runtime_folder), "the engine survived a restart")


def test_a2_kill_9_of_an_idle_kernel(kernel, runtime_folder):
    kernel.ok(START)
    _wait_for_engine(runtime_folder)
    kernel.kill()
    wait_until(lambda: not engine_pids(runtime_folder), "the engine survived kill -9 of its kernel")


def test_a2_kill_9_of_a_kernel_while_the_model_loads(kernel, runtime_folder):
    kernel.submit("ks.LLM('fake:start_seconds=60', fake_model=True)")
    _wait_for_engine(runtime_folder)
    kernel.kill()
    wait_until(
        lambda: not engine_pids(runtime_folder), "the engine survived in the middle of its start"
    )


def test_a2_kill_9_of_a_kernel_in_the_middle_of_a_step(kernel, runtime_folder):
    kernel.ok(START)
    _wait_for_engine(runtime_folder)
    kernel.wait_for_text(kernel.submit(LONG_REQUEST), "running")
    kernel.kill()
    wait_until(
        lambda: not engine_pids(runtime_folder), "the engine survived in the middle of a step"
    )


def test_a18_the_next_start_works_and_clears_what_a_double_kill_left(
    kernel, new_kernel, runtime_folder
):
    """Kernel and engine both die by kill -9: nobody is there to clean up but the next start."""
    kernel.ok(START)
    engine = _wait_for_engine(runtime_folder)
    kernel.submit(
        f"import signal; os.kill({engine}, signal.SIGKILL); os.kill(os.getpid(), signal.SIGKILL)"
    )
    wait_until(lambda: not engine_pids(runtime_folder), "kill -9 did not end the engine")
    second = new_kernel()
    second.ok("import kernelserve as ks")
    second.ok(START)
    assert (
        second.ok(
            "print(len(llm.generate([1, 2], ks.SamplingParams(max_tokens=3, detokenize=False), use_tqdm=False)))"
        )
        == "1"
    )
    assert len(list(runtime_folder.glob("*/in.sock"))) == 1
    second.ok("llm.close()")


def test_a20_closing_the_kernel_politely_leaves_nothing(kernel, runtime_folder):
    kernel.ok(START)
    _wait_for_engine(runtime_folder)
    kernel.submit("exit()")
    wait_until(lambda: not engine_pids(runtime_folder), "the engine survived a polite end")
