"""%serve and %engine in a real kernel, with an LLM of the user's beside them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.helpers.front_end import FrontEnd
from tests.helpers.leftovers import engine_pids, wait_until
from tests.helpers.tokenizers import fake_model_that_speaks

pytestmark = [pytest.mark.notebook, pytest.mark.process]

ASK = "%%generate --max-tokens 3\nHello"


@pytest.fixture
def model(tmp_path: Path) -> str:
    return fake_model_that_speaks(tmp_path / "tokenizer")


@pytest.fixture
def runtime_folder(shared_kernels) -> Path:
    folder: Path = shared_kernels.runtime_folder
    return folder


@pytest.fixture
def front(shared_kernel) -> FrontEnd:
    front = FrontEnd(shared_kernel)
    front.ok("%load_ext kernelserve\nimport kernelserve as ks")
    return front


def test_a_restart_leaves_everybody_an_engine(
    front: FrontEnd, model: str, runtime_folder: Path
) -> None:
    front.ok(f"%serve {model} --fake-model")
    front.ok(f"llm = ks.LLM({model!r}, fake_model=True, show_progress=False)")
    [before] = engine_pids(runtime_folder)
    assert "3 tokens" in front.ok(ASK)
    assert "kernelserve: fake" in front.ok("%engine restart")
    [after] = engine_pids(runtime_folder)
    assert after != before
    assert "3 tokens" in front.ok(ASK)
    assert front.ok("print(len(llm.generate('Hello', use_tqdm=False)))") == "1"
    assert engine_pids(runtime_folder) == [after], "nobody has started another one"


def test_a_dead_engine_is_restarted(front: FrontEnd, model: str, runtime_folder: Path) -> None:
    front.ok(f"%serve {model} --fake-model")
    [pid] = engine_pids(runtime_folder)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not engine_pids(runtime_folder), "the engine lives", 5)
    assert "SIGKILL" in (front.run(ASK).error or "")
    assert f"pid {pid}" in front.ok("%engine logs"), "the log of the one that died"
    front.ok("%engine restart")
    assert "3 tokens" in front.ok(ASK)


def test_the_log_of_a_start_that_failed_is_shown(front: FrontEnd, model: str) -> None:
    assert "start one with %serve" in (front.run("%engine logs").error or "")
    failed = front.run(f"%serve {model},fail=error --fake-model")
    assert "this fake model cannot be loaded" in (failed.error or "")
    assert "%engine logs" in failed.traceback
    assert "this fake model cannot be loaded" in front.ok("%engine logs")


def test_stop_frees_it_and_the_next_one_may_be_another(
    front: FrontEnd, model: str, runtime_folder: Path
) -> None:
    assert "no engine runs in this notebook" in front.ok("%engine")
    assert "start one with %serve" in (front.run("%engine stop").error or "")
    front.ok(f"%serve {model} --fake-model --max-num-seqs 3")
    assert "0 running, 0 waiting" in front.ok("%engine status")
    assert "context" in front.ok("%serve"), "the one that runs"
    [engine_id] = [
        word for word in front.ok("%engine list").split() if len(word) == 8 and word.isalnum()
    ]
    assert "kernelserve: fake" in front.ok(f"%engine attach {engine_id}")
    front.ok("%engine stop")
    wait_until(lambda: not engine_pids(runtime_folder), "the engine lives", 5)
    assert "no engine of yours" in front.ok("%engine list")
    front.ok(f"%serve {model},step_seconds=0.001 --fake-model")
    assert "3 tokens" in front.ok(ASK)


def test_mistakes_are_one_line(front: FrontEnd) -> None:
    for line, part in (
        ("%engine dance", "use status, logs"),
        ("%engine attach nobody", "no engine 'nobody' runs"),
        ("%engine logs many", "a number of lines"),
        ("%serve --max-model-len many", "invalid int value"),
        ("%serve no/such/model --lifetime for-ever", "is not one of kernel, linger, detached"),
        ("%dashboard open", "use %dashboard"),
        ("%requests now", "takes no arguments"),
        ("%chat forget", "use %chat list"),
    ):
        cell = front.run(line)
        assert part in (cell.error or ""), line
        assert "\n" not in cell.traceback.strip(), line
