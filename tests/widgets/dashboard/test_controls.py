"""Fields that change a real engine."""

from __future__ import annotations

import threading
import time

import pytest

import kernelserve as ks
from kernelserve_widgets.dashboard.controls import Controls
from kernelserve_widgets.views.cell_display import CellDisplay
from tests.helpers.leftovers import assert_nothing_left

pytestmark = pytest.mark.process


@pytest.fixture
def llm(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("rt")
    monkeypatch.setenv("KERNELSERVE_RUNTIME_DIR", str(folder))
    with ks.LLM(
        "fake", fake_model=True, show_progress=False, max_num_batched_tokens=64, max_num_seqs=8
    ) as llm:
        yield llm
    assert_nothing_left(folder, timeout=8)


@pytest.fixture
def controls(llm):
    controls = Controls(lambda: llm, CellDisplay())
    controls.show_engine(llm.engine, None)
    yield controls
    controls.close()


def wait_for_message(controls: Controls, *parts: str) -> None:
    deadline = time.monotonic() + 10
    while not all(part in controls.message for part in parts):
        assert time.monotonic() < deadline, controls.message
        time.sleep(0.01)


def budgets(llm: ks.LLM) -> list[int]:
    """The budget of each step of a new request."""
    first = llm.stats().num_steps
    params = ks.SamplingParams(max_tokens=2, detokenize=False)
    llm.generate([[1] * 40], params, use_tqdm=False)
    return [record.token_budget for record in llm.step_records(first)]


def test_fields_show_what_the_engine_has_started_with(controls):
    values = {name: field.value for name, field in controls.fields.items()}
    assert values == {
        "max_num_batched_tokens": 64,
        "max_num_seqs": 8,
        "long_prefill_token_threshold": 0,
        "policy": "fcfs",
    }
    assert controls.message == ""


def test_a_new_budget_is_that_of_the_next_steps(controls, llm):
    controls.fields["max_num_batched_tokens"].value = 20
    wait_for_message(controls, "max_num_batched_tokens is 20", 'role="status"')
    assert budgets(llm) == [20, 20, 20]  # 40 prompt tokens, and one decode step


def test_a_chunk_limit_and_a_policy_reach_the_engine(controls, llm):
    controls.fields["long_prefill_token_threshold"].value = 10
    wait_for_message(controls, "long_prefill_token_threshold is 10")
    assert len(budgets(llm)) == 4 + 1
    controls.fields["policy"].value = "priority"
    wait_for_message(controls, "policy is priority")


def test_a_value_out_of_range_shows_why_and_changes_nothing(controls, llm):
    controls.fields["max_num_batched_tokens"].value = 3  # below the seats
    wait_for_message(controls, "max_num_seqs=8 is above max_num_batched_tokens=3", 'role="alert"')
    deadline = time.monotonic() + 5
    while controls.fields["max_num_batched_tokens"].value != 64:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert set(budgets(llm)) == {64}
    controls.fields["max_num_seqs"].value = -1
    wait_for_message(controls, "max_num_seqs=-1", 'role="alert"')
    assert "Error:" not in controls.message


def test_c17_fields_send_when_they_are_left_not_while_typing(controls):
    for name in ("max_num_batched_tokens", "max_num_seqs", "long_prefill_token_threshold"):
        assert controls.fields[name].continuous_update is False


def test_the_callback_returns_at_once_while_the_engine_is_busy():
    """It must not wait for a step to end."""
    release = threading.Event()

    class SlowLLM:
        def configure(self, **limits: object) -> None:
            assert release.wait(10)

    controls = Controls(lambda: SlowLLM(), CellDisplay())  # type: ignore[arg-type, return-value]
    try:
        began = time.monotonic()
        controls.fields["max_num_seqs"].value = 5
        assert time.monotonic() - began < 1
        assert controls.message == ""
        release.set()
        wait_for_message(controls, "max_num_seqs is 5")
    finally:
        controls.close()


def test_without_an_engine_a_change_says_so():
    controls = Controls(lambda: None, CellDisplay())
    try:
        controls.fields["max_num_seqs"].value = 5
        wait_for_message(controls, "no engine runs", 'role="alert"')
    finally:
        controls.close()


def test_a_budget_that_code_has_changed_is_shown(controls, llm):
    llm.configure(max_num_batched_tokens=32)
    controls.show_engine(llm.engine, 32)
    assert controls.fields["max_num_batched_tokens"].value == 32
    assert budgets(llm) == [32, 32, 32]
    assert controls.message == ""


def test_closing_leaves_no_widget(controls):
    import ipywidgets

    controls.close()
    registry = ipywidgets.widgets.widget._instances
    assert not [widget for widget in registry.values() if "kernelserve" in type(widget).__module__]
    assert controls.fields["policy"].comm is None
