"""Timelines of real engines: in a script, in a kernel whose slider is moved, and in a saved notebook."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import kernelserve as ks
from kernelserve.protocol import StepRecord
from kernelserve_widgets.timeline import Timeline
from tests.helpers.kernel import Kernel, start_kernel
from tests.helpers.leftovers import assert_nothing_left

START = """
import kernelserve as ks
llm = ks.LLM("fake:step_seconds=0.002", fake_model=True, show_progress=False)
params = ks.SamplingParams(max_tokens=12, detokenize=False, ignore_eos=True)
llm.generate([[11] * 40, [12] * 30], params, use_tqdm=False)
from kernelserve_widgets.timeline import Timeline
"""
VIEW_MIME = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def runtime_folder(tmp_path_factory, monkeypatch) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("rt")
    monkeypatch.setenv("KERNELSERVE_RUNTIME_DIR", str(folder))
    yield folder
    assert_nothing_left(folder, timeout=8)


@pytest.fixture
def kernel(runtime_folder) -> Iterator[Kernel]:
    with start_kernel(KERNELSERVE_RUNTIME_DIR=str(runtime_folder)) as kernel:
        yield kernel


@pytest.mark.process
def test_a_real_run_from_arrival_to_end(runtime_folder, tmp_path) -> None:
    params = ks.SamplingParams(max_tokens=40, detokenize=False, ignore_eos=True)
    options: dict[str, Any] = {
        "num_gpu_blocks": 15,
        "block_size": 8,
        "max_num_batched_tokens": 32,
        "max_num_seqs": 8,
    }
    with ks.LLM("fake:step_seconds=0.005", fake_model=True, show_progress=False, **options) as llm:
        pending = [
            llm.submit([20 + i] * length, params, request_id=f"r{i}")
            for i, length in enumerate((70, 20, 24, 30))
        ]
        while not any(_has_joined(record, "r3") for record in llm.recent_step_records()):
            time.sleep(0.005)
        pending[3].abort()
        for one in pending:
            one.done.result(timeout=30)
        timeline = Timeline.of(llm)
        records = llm.step_records()
    assert timeline.history.live == []
    lives = {life.label: life for life in timeline.history.requests.values()}
    ended = dict.fromkeys(("r0", "r1", "r2"), "finished") | {"r3": "aborted"}
    assert {label: life.state for label, life in lives.items()} == ended
    for label in ("r0", "r1", "r2"):
        assert lives[label].num_generated_tokens == 40
        spans = lives[label].spans
        assert all(a.end == b.start for a, b in pairwise(spans))
        assert spans[-1].end == lives[label].ended_at
    assert sum(life.num_preemptions for life in lives.values()) > 0
    assert "r0 got 32 of 70 prompt tokens" in timeline.describe(records[0].step)
    assert any("was preempted" in timeline.describe(step) for step in timeline.steps)
    trace = json.loads(timeline.to_perfetto(tmp_path / "t.json").read_text())
    steps = [e for e in trace["traceEvents"] if e["name"].startswith("step ")]
    assert len(steps) == len(records)
    assert all(event["dur"] >= 5000 for event in steps)  # microseconds: the fake model sleeps
    assert timeline.plot()._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


# They come after the picture, from another thread.
UNTIL_THE_WORDS_FOLLOW = """
import time
deadline = time.monotonic() + 5
while not t._view.words.value.startswith("<p>step 3: ") and time.monotonic() < deadline:
    time.sleep(0.02)
"""


@pytest.mark.notebook
def test_the_slider_of_a_real_kernel(kernel: Kernel) -> None:
    kernel.ok(START)
    message_id = kernel.submit("t = Timeline.of(llm); t.show()")
    opened: list[tuple[str, str]] = []
    displays: list[dict[str, Any]] = []
    for message in messages(kernel, message_id):
        content = message["content"]
        if message["msg_type"] == "comm_open":
            opened.append((content["comm_id"], content["data"]["state"].get("_model_name")))
        elif message["msg_type"] == "display_data":
            displays.append(content)
    picture, controls = displays
    assert base64.b64decode(picture["data"]["image/png"]).startswith(b"\x89PNG")
    assert VIEW_MIME in controls["data"]
    (slider,) = [comm_id for comm_id, name in opened if name == "IntSliderModel"]
    kernel.client.shell_channel.send(
        kernel.client.session.msg(
            "comm_msg",
            {"comm_id": slider, "data": {"method": "update", "state": {"value": 3}}},
        )
    )
    update = next(m for m in messages(kernel) if m["msg_type"] == "update_display_data")
    assert update["content"]["transient"] == picture["transient"]
    assert update["content"]["data"]["text/plain"].splitlines()[1].startswith("step 3: ")
    assert update["parent_header"]["msg_id"] == message_id  # it belongs to the cell that showed it
    kernel.ok(UNTIL_THE_WORDS_FOLLOW)
    assert kernel.ok("print(t._view.words.value)").startswith("<p>step 3: ")


@pytest.mark.notebook
def test_what_a_saved_notebook_keeps(runtime_folder) -> None:
    cells = [START, "t = Timeline.of(llm); t.show()", "t.plot(2)", "t.close(); llm.close()"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    shown = notebook.cells[1].outputs
    assert [output.output_type for output in shown] == ["display_data", "display_data"]
    assert base64.b64decode(shown[0].data["image/png"]).startswith(b"\x89PNG")
    assert "image/png" in notebook.cells[2].outputs[0].data
    assert shown[0].data["text/plain"].startswith("Timeline(")
    assert shown[1].data["text/plain"].startswith("Timeline(")


def _has_joined(record: StepRecord, name: str) -> bool:
    return any(queued.request_id.startswith(f"{name}-") for queued in record.queued)


def messages(kernel: Kernel, message_id: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield what the kernel says; with an id, only for that cell and until it is done."""
    while True:
        message: dict[str, Any] = kernel.client.get_iopub_msg(timeout=30)
        if message_id is not None and message["parent_header"].get("msg_id") != message_id:
            continue
        yield message
        if message_id is not None and message["content"].get("execution_state") == "idle":
            return
