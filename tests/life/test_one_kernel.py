"""A1, A3-A7, A14-A16: one kernel, its engine, and what people do to them."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from tests.helpers.kernel import on_both_ipykernels
from tests.helpers.leftovers import engine_pids

pytestmark = [pytest.mark.process, pytest.mark.notebook]

FAKE = "'fake:step_seconds=0.005', fake_model=True, show_progress=False"
SHORT = "ks.SamplingParams(max_tokens=4, detokenize=False)"


@on_both_ipykernels
def test_the_kernel_runs_the_ipykernel_that_is_asked_for(kernel, ipykernel):
    shown = kernel.ok("import ipykernel; print(ipykernel.__version__, os.getpid())")
    version, pid = shown.split()
    assert f"ipykernel{version.partition('.')[0]}" == ipykernel
    assert int(pid) == kernel.pid
    kernel.restart()
    assert kernel.ok("import ipykernel; print(ipykernel.__version__)") == version


def test_a1_five_rounds_of_start_generate_close(kernel, runtime_folder):
    for i in range(5):
        kernel.ok(f"llm = ks.LLM({FAKE}, seed={i})\nllm.generate([1, 2], {SHORT}, use_tqdm=False)")
        assert len(engine_pids(runtime_folder)) == 1
        kernel.ok("llm.close()")
        assert engine_pids(runtime_folder) == []


def test_a1_dropping_the_object_or_leaving_the_block_ends_the_engine(kernel, runtime_folder):
    kernel.ok(f"llm = ks.LLM({FAKE})")
    kernel.ok("import gc; del llm; gc.collect(); time.sleep(1)")
    assert engine_pids(runtime_folder) == []
    kernel.ok(f"with ks.LLM({FAKE}) as llm: llm.generate([1, 2], {SHORT}, use_tqdm=False)")
    assert engine_pids(runtime_folder) == []


def test_a3_a_failed_cell_does_not_pin_the_engine(kernel, runtime_folder):
    kernel.ok(f"llm = ks.LLM({FAKE})")
    cell = kernel.run("llm.generate([10**9], ks.SamplingParams(detokenize=False))")
    assert cell.error is not None
    assert "InvalidRequestError" in cell.error
    assert (
        kernel.ok("import sys; print('torch' in sys.modules, sys.last_traceback is not None)")
        == "False True"
    )
    kernel.ok("llm.close()")
    assert engine_pids(runtime_folder) == []


def test_a4_running_the_load_cell_again_gives_the_same_engine(kernel, runtime_folder):
    kernel.ok(f"llm = ks.LLM({FAKE})")
    first = engine_pids(runtime_folder)
    for _ in range(2):
        assert (
            float(kernel.ok(f"t = time.time(); llm = ks.LLM({FAKE}); print(time.time() - t)")) < 1
        )
        assert engine_pids(runtime_folder) == first
    kernel.ok(f"other = ks.LLM({FAKE}, seed=9)")
    assert len(engine_pids(runtime_folder)) == 1
    assert engine_pids(runtime_folder) != first
    cell = kernel.run(f"llm.generate([1, 2], {SHORT})")
    assert "replaced" in (cell.error or "")
    kernel.ok("other.close()")


@on_both_ipykernels
def test_a5_sync_and_async_calls_in_queued_cells_with_a_running_loop(kernel):
    before = kernel.ok(
        "import asyncio, sys; loop = asyncio.get_running_loop(); print(type(loop), type(asyncio.get_event_loop_policy()))"
    )
    cells = [
        f"llm = ks.LLM({FAKE})",
        f"a = llm.generate([1, 2], {SHORT}, use_tqdm=False)[0].outputs[0].token_ids",
        f"b = [out async for out in ks.AsyncLLM({FAKE.replace(', show_progress=False', '')}).generate([1, 2], {SHORT})][-1]",
        "print(a == b.outputs[0].token_ids)",
    ]
    sent = [kernel.submit(cell) for cell in cells]
    done = [kernel.finish(message) for message in sent]
    assert [cell.error for cell in done] == [None] * 4
    assert done[-1].text.strip() == "True"
    after = kernel.ok("print(type(loop), type(asyncio.get_event_loop_policy()))")
    assert after == before
    assert (
        kernel.ok("print('nest_asyncio' in sys.modules, loop is asyncio.get_running_loop())")
        == "False True"
    )
    kernel.ok("llm.close()")


@on_both_ipykernels
def test_a6_start_with_multiprocessing_set_to_fork_and_a_class_in_the_notebook(kernel):
    kernel.ok(
        "import multiprocessing; multiprocessing.set_start_method('fork')\nclass Mine: pass\nprint_me = 'once'"
    )
    kernel.ok(f"llm = ks.LLM({FAKE}); llm.generate([1, 2], {SHORT}, use_tqdm=False)")
    forked = kernel.ok(
        f"""
def child(q):
    try:
        llm.generate([1, 2], {SHORT}, use_tqdm=False)
    except Exception as error:
        q.put(type(error).__name__)
q = multiprocessing.Queue()
p = multiprocessing.Process(target=child, args=(q,))
p.start(); print(q.get(timeout=20)); p.join()
"""
    )
    assert forked == "EngineDeadError"
    kernel.ok(f"llm.generate([1, 2], {SHORT}, use_tqdm=False); llm.close()")


@on_both_ipykernels
def test_a7_streams_without_a_file_descriptor(kernel):
    kernel.ok(
        f"""
import io, sys
class NoFileno(io.StringIO):
    def fileno(self): raise io.UnsupportedOperation("fileno")
keep = sys.stdout, sys.stderr
sys.stdout, sys.stderr = NoFileno(), object()
try:
    llm = ks.LLM('fake', fake_model=True)
    llm.generate([1, 2], {SHORT}, use_tqdm=False)
    llm.close()
finally:
    sys.stdout, sys.stderr = keep
"""
    )


def test_a14_a15_t48_a_dead_engine_is_noticed_and_can_be_restarted(kernel, runtime_folder):
    kernel.ok(f"llm = ks.LLM({FAKE}); kept = 42")
    (engine,) = engine_pids(runtime_folder)
    cell = kernel.submit(
        """
print("go")
try:
    llm.generate([1, 2], ks.SamplingParams(max_tokens=4000, detokenize=False), use_tqdm=False)
except ks.EngineDeadError as error:
    print(time.time())
    raise
"""
    )
    kernel.wait_for_text(cell, "go")
    killed = time.time()
    os.kill(engine, signal.SIGSEGV)
    result = kernel.finish(cell, timeout=20)
    assert "EngineDeadError" in (result.error or "")
    assert "SIGSEGV" in (result.error or "")
    noticed = float(result.text.split()[-1]) - killed
    assert noticed < 2, noticed
    again = kernel.run(f"llm.generate([1, 2], {SHORT})")
    assert "EngineDeadError" in (again.error or "")
    assert kernel.ok("print(kept)") == "42"
    assert (
        kernel.ok(f"llm.restart(); print(len(llm.generate([1, 2], {SHORT}, use_tqdm=False)))")
        == "1"
    )
    kernel.ok("llm.close()")


def test_a14_t48_a_stopped_engine_is_a_hang_and_a_continued_one_goes_on(kernel, runtime_folder):
    kernel.ok(f"llm = ks.LLM({FAKE}, heartbeat_timeout=3)")
    (engine,) = engine_pids(runtime_folder)
    os.kill(engine, signal.SIGSTOP)
    kernel.ok("time.sleep(1)")
    os.kill(engine, signal.SIGCONT)
    assert kernel.ok(f"print(len(llm.generate([1, 2], {SHORT}, use_tqdm=False)))") == "1"
    os.kill(engine, signal.SIGSTOP)
    cell = kernel.run(f"llm.generate([1, 2], {SHORT})", timeout=15)
    assert "EngineDeadError" in (cell.error or "")
    assert "heartbeat" in (cell.error or "")
    kernel.ok("llm.close()")


def test_a16_threads_tasks_and_a_second_kernel_at_once(kernel, new_kernel):
    kernel.ok(f"llm = ks.LLM({FAKE}, name='shared', lifetime='detached')")
    other = new_kernel()
    other.ok("import kernelserve as ks; llm = ks.LLM.attach('shared')")
    work = """
import asyncio, json
from concurrent.futures import ThreadPoolExecutor
params = ks.SamplingParams(max_tokens=20, detokenize=False)
def one(i): return llm.generate([i, i + 1], params, use_tqdm=False)[0].outputs[0].token_ids
engine = ks.AsyncLLM.attach('shared')
async def stream(i):
    delta = ks.SamplingParams(max_tokens=20, detokenize=False, output_kind=ks.RequestOutputKind.DELTA)
    return [t async for out in engine.generate([i, i + 1], delta) for t in out.outputs[0].token_ids]
with ThreadPoolExecutor(8) as pool:
    threads = [pool.submit(one, i) for i in range(8)]
    tasks = await asyncio.gather(*[stream(i) for i in range(8)])
    print(json.dumps([[t.result() for t in threads], tasks]))
"""
    solo = kernel.ok(
        "import json; params = ks.SamplingParams(max_tokens=20, detokenize=False)\n"
        "print(json.dumps([llm.generate([i, i + 1], params, use_tqdm=False)[0].outputs[0].token_ids for i in range(8)]))"
    )
    sent = kernel.submit(work), other.submit(work)
    for cell in (kernel.finish(sent[0]), other.finish(sent[1])):
        assert cell.error is None, cell.traceback
        threads, tasks = json.loads(cell.text)
        assert threads == tasks == json.loads(solo)
    kernel.ok("llm.stop()")


@on_both_ipykernels
def test_a10_restarting_one_of_two_kernels_leaves_the_other_alone(
    kernel, new_kernel, runtime_folder
):
    kernel.ok(
        "llm = ks.LLM('fake:step_seconds=0.01', fake_model=True, show_progress=False, name='shared', lifetime='detached')"
    )
    other = new_kernel()
    other.ok("import kernelserve as ks; llm = ks.LLM.attach('shared')")
    long = (
        "llm.generate([1, 2], ks.SamplingParams(max_tokens=4000, detokenize=False), use_tqdm=False)"
    )
    kernel.wait_for_text(kernel.submit(f"print('go')\n{long}"), "go")
    cell = other.submit(
        "print(len(llm.generate([3, 4], ks.SamplingParams(max_tokens=300, detokenize=False), use_tqdm=False)[0].outputs[0].token_ids))"
    )
    kernel.restart()
    result = other.finish(cell)
    assert result.error is None, result.traceback
    assert result.text.strip() == "300"
    assert other.ok("import time; time.sleep(2.5); print(llm.stats().num_running_reqs)") == "0"
    other.ok("llm.stop()")


def test_a17_the_second_load_of_a_real_model_answers_as_the_first(kernel, runtime_folder):
    code = """
llm = ks.LLM(show_progress=False, max_model_len=512)
greedy = ks.SamplingParams(temperature=0, max_tokens=12)
[answer] = llm.generate("The capital of France is", greedy, use_tqdm=False)
print(answer.num_cached_tokens, answer.text)
llm.close()
"""
    first = kernel.ok(code, timeout=100)
    assert first.startswith("0  Paris")
    assert engine_pids(runtime_folder) == []
    assert kernel.ok(code, timeout=100) == first
