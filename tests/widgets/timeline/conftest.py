"""Recording comms and displays, and a run to look at."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core import display_functions

from kernelserve_widgets.timeline import Timeline
from tests.helpers.recorded_run import RecordedRun
from tests.helpers.recording_comm import CommLog, record_comms
from tests.helpers.scheduling import Engine


@pytest.fixture
def comms(monkeypatch) -> CommLog:
    """All comms that the test opens."""
    return record_comms(monkeypatch)


@pytest.fixture
def displays(monkeypatch) -> list[dict[str, Any]]:
    """Everything that is displayed: data, display id, update."""
    shown: list[dict[str, Any]] = []

    def publish(data, metadata=None, *, transient=None, update=False):
        shown.append({"data": data, "id": (transient or {}).get("display_id"), "update": update})

    monkeypatch.setattr(display_functions, "publish_display_data", publish)
    return shown


@pytest.fixture(scope="session")
def run() -> RecordedRun:
    """Chunked prefills, a preemption, a prefix hit, a wait for blocks, an abort, an end of each kind."""
    run = RecordedRun(
        Engine(num_blocks=14, block_size=4, max_num_seqs=3, max_num_batched_tokens=12)
    )
    run.submit(20, 14, prefix=4)
    run.submit(6, 16, prefix=4)
    run.step()
    run.submit(10, 6, prefix=0)
    run.submit(18, 5, prefix=4)
    for _ in range(12):
        run.step()
    run.submit(5, 20)
    for _ in range(8):
        run.step()
    run.abort(len(run.engine.scheduler.requests) - 1)
    run.finish()
    for record in run.records:
        record.schedule_time, record.execute_time = 0.02, 0.5
        record.sample_time, record.update_time = 0.06, 0.02
    assert run.stats.num_preemptions > 0
    assert run.aborted
    return run


@pytest.fixture
def timeline(run) -> Timeline:
    """Its timeline, with every life closed."""
    timeline = Timeline(run.records)
    timeline.history.settle(run.stats)
    return timeline
