"""Requests that run while their caller does something else, and engines that are found again."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

import kernelserve as ks
from tests.helpers.tokenizers import fake_model_that_speaks

pytestmark = pytest.mark.process

GREEDY = ks.SamplingParams(temperature=0, max_tokens=40)


@pytest.fixture
def model(tmp_path: Path, runtime_folder: Path) -> str:
    return fake_model_that_speaks(tmp_path / "tokenizer", step_seconds=0.005)


def test_what_is_taken_adds_up_to_the_answer(model: str) -> None:
    with ks.LLM(model, fake_model=True, show_progress=False) as llm:
        [whole] = llm.generate("Hello", GREEDY, use_tqdm=False)
        pending = llm.submit("Hello", GREEDY, request_id="r1")
        taken = []
        while not pending.done.done():
            time.sleep(0.02)
            taken.append(pending.take())
        taken.append(pending.take())
        outputs = [output for output in taken if output is not None]
        texts = [output.text for output in outputs]
        ids = [token for output in outputs for token in output.outputs[0].token_ids]
        assert len(texts) > 2
        assert "".join(texts) == whole.text
        assert ids == whole.outputs[0].token_ids
        assert pending.prompt == "Hello"
        assert pending.internal_id.startswith("r1-")
        assert any(
            pending.internal_id in record.num_scheduled_tokens
            for record in llm.recent_step_records()
        )


def test_an_abort_gives_a_last_output_and_is_harmless_afterwards(model: str) -> None:
    with ks.LLM(model, fake_model=True, show_progress=False) as llm:
        pending = llm.submit("Hello", GREEDY.clone(max_tokens=5000))
        while pending.take() is None:
            time.sleep(0.01)
        pending.abort()
        pending.done.result(timeout=5)
        last = pending.take()
        assert last is not None
        assert last.outputs[0].finish_reason == "abort"
        pending.abort()
        assert pending.take() is None
    pending.abort()


def test_an_engine_that_dies_is_told_after_what_came_before(model: str) -> None:
    llm = ks.LLM(model, fake_model=True, show_progress=False)
    pending = llm.submit("Hello", GREEDY.clone(max_tokens=5000))
    time.sleep(0.2)
    llm.close()
    pending.done.result(timeout=5)
    assert pending.take() is not None
    with pytest.raises(ks.EngineDeadError, match="was closed"):
        pending.take()


def test_a_prompt_that_cannot_be_served_is_refused_at_once(model: str) -> None:
    with (
        ks.LLM(model, fake_model=True, show_progress=False) as llm,
        pytest.raises(ks.InvalidRequestError),
    ):
        llm.submit("word " * 20_000, GREEDY)


def test_running_finds_the_engine_of_a_slot_and_keeps_it_no_longer_than_itself(model: str) -> None:
    assert ks.LLM.running() is None
    llm = ks.LLM(model, fake_model=True, show_progress=False)
    found = ks.LLM.running()
    assert found is not None
    assert found.engine.pid == llm.engine.pid
    del llm
    assert found.generate("Hello", GREEDY, use_tqdm=False)
    del found
    assert ks.LLM.running() is None


def test_running_waits_for_a_start_only_if_it_may(model: str) -> None:
    engines: list[ks.LLM] = []
    slow = f"{model},start_seconds=1"
    starter = threading.Thread(
        target=lambda: engines.append(ks.LLM(slow, fake_model=True, show_progress=False))
    )
    starter.start()
    time.sleep(0.3)
    assert ks.LLM.running(wait=False) is None
    assert ks.LLM.running() is not None
    starter.join()
    engines.clear()


def test_what_a_dead_engine_has_done_can_still_be_seen(model: str) -> None:
    llm = ks.LLM(model, fake_model=True, show_progress=False)
    llm.generate("Hello", GREEDY, use_tqdm=False)
    assert llm.latest_stats.num_steps == 40
    os.kill(llm.engine.pid, signal.SIGKILL)
    llm.submit("Hello", GREEDY).done.result(timeout=5)
    with pytest.raises(ks.EngineDeadError, match="SIGKILL"):
        llm.submit("Hello", GREEDY)
    assert len(llm.recent_step_records()) >= 40
    assert llm.latest_stats.num_steps == 0
    llm.close()
