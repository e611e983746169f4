"""Each measurement runs for real, small; the figures themselves are not judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelserve.bench.machine import machine_facts, peak_rss_mb
from kernelserve.bench.scheduler_cost import measure_scheduler


def run_bench(*arguments: str) -> list[dict[str, Any]]:
    result = subprocess.run(
        [sys.executable, "-m", "kernelserve.bench", *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert not result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_machine_facts_are_complete() -> None:
    facts = machine_facts()
    assert facts["cpu"]
    assert facts["cores"] >= 1
    assert facts["memory_gb"] > 0
    assert facts["versions"]["kernelserve"]
    peak = peak_rss_mb(os.getpid())
    assert peak is not None
    assert peak > 1
    assert peak_rss_mb(2**22 + 1) is None


def test_step_cost_does_not_grow_with_the_queue() -> None:
    """Flat in the number of waiting requests: a generous factor, since the machine is shared."""
    results = {(r["running"], r["waiting"]): r["step_ms"] for r in measure_scheduler(steps=40)}
    assert set(results) == {(n, w) for n in (1, 64, 256) for w in (0, 10_000)}
    for running in (64, 256):
        assert results[running, 10_000] < 3 * results[running, 0]


def test_the_command_line_writes_the_same_lines_twice(tmp_path: Path) -> None:
    copy = tmp_path / "lines.json"
    lines = run_bench("import", "--json", str(copy))
    assert [line["bench"] for line in lines] == ["machine", "import"]
    assert lines[1]["torch_loaded"] is False
    assert [json.loads(line) for line in copy.read_text().splitlines()] == lines


def test_an_unknown_bench_is_named() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "kernelserve.bench", "w9"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2
    assert "there is no w9; choose from w1, w2" in result.stderr


@pytest.mark.process
def test_ipc_is_measured_with_real_processes() -> None:
    lines = run_bench("ipc")
    assert [line.get("what") for line in lines[1:]] == [
        "ping",
        "one token",
        "token of a stream",
        "ping, blocking",
    ]
    assert lines[3]["tokens"] == 64 * 256


@pytest.mark.process
def test_the_client_is_measured_alone_and_behind_real_sockets() -> None:
    lines = run_bench("client")[1:]
    assert [(line["what"], line["streams"]) for line in lines] == [
        ("processing", 1),
        ("processing", 64),
        ("whole way", 1),
        ("whole way", 64),
    ]
    for line in lines[2:]:
        assert line["tokens"] == line["streams"] * 257
        assert 0 < line["reader_cpu_us"] < line["client_cpu_us"]


@pytest.mark.process
def test_a_workload_runs_through_the_public_api() -> None:
    [_, w4] = run_bench("w4", "--reps", "1")
    assert w4["bench"] == "w4"
    assert w4["prompt_tok_s"] > 0
    assert w4["engine_peak_mb"] > 100
