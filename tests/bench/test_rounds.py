"""Players that are processes, with an engine that only waits."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from kernelserve.bench.peer_environment import PeerEnvironment
from kernelserve.bench.peer_error import PeerError
from kernelserve.bench.peer_jobs import PeerJobs
from kernelserve.bench.peer_process import PeerProcess
from kernelserve.bench.process_tree import ProcessTree, busy_seconds
from kernelserve.bench.rounds import play_cold_rounds, play_warm_rounds

FAKE = Path(__file__).with_name("fake_peer.py")
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def fake(folder: Path, workload: str, name: str, variant: str = "") -> PeerProcess:
    jobs = PeerJobs(folder, rounds=4)
    job = jobs.write(name, workload, variant=variant, models="", options={})
    return PeerProcess(
        name,
        [sys.executable, str(FAKE), str(job)],
        folder=folder,
        variables=os.environ | {"PYTHONPATH": str(ROOT)},
        log=folder / f"{name}.log",
    )


async def test_players_take_turns_and_another_begins_each_round(tmp_path: Path) -> None:
    seats = {name: partial(fake, tmp_path, "w1", name) for name in ("ours", "peer")}
    lines = [line async for line in play_warm_rounds(seats, 4)]
    assert [(line["round"], line["player"]) for line in lines] == [
        (1, "peer"),
        (1, "ours"),
        (2, "ours"),
        (2, "peer"),
        (3, "peer"),
        (3, "ours"),
        (4, "ours"),
        (4, "peer"),
    ]
    for line in lines:
        assert line["what"].endswith("1 x 384")
        assert 0 < line["decode_tok_s"] < 1000
        assert line["ttft_ms"] >= 1
        assert line["peak_mb"] > 1
        assert line["others_cores"] >= 0
    assert "a library that talks" in (tmp_path / "peer.log").read_text()


async def test_a_cold_start_is_a_new_process_each_time(tmp_path: Path) -> None:
    seats = {"ours": partial(fake, tmp_path, "w5", "ours")}
    lines: list[dict[str, Any]] = [line async for line in play_cold_rounds(seats, 2)]
    assert [line["round"] for line in lines] == [1, 2]
    assert all(line["cold_s"] > 0.001 for line in lines)


async def test_a_peer_that_fails_says_why_and_the_others_go_on(tmp_path: Path) -> None:
    seats = {
        "broken": partial(fake, tmp_path, "w4", "broken", "broken"),
        "silent": partial(fake, tmp_path, "w4", "silent", "silent"),
        "peer": partial(fake, tmp_path, "w4", "peer"),
    }
    broken, silent, *rest = [line async for line in play_warm_rounds(seats, 1)]
    assert broken["player"] == "broken"
    assert "did not load: this processor lacks everything" in broken["error"]
    assert "did not answer: asked for 1 x 1 tokens, got [0]" in silent["error"]
    assert [line["player"] for line in rest] == ["peer"]


async def test_a_player_in_the_middle_of_a_turn_ends_with_the_run(tmp_path: Path) -> None:
    with anyio.fail_after(20):  # less than it is given before it is killed
        async with fake(tmp_path, "w4", "endless", "endless") as player:
            with anyio.move_on_after(0.2) as turn:
                await player.run(0)
    assert turn.cancelled_caught


async def test_nothing_is_compared_when_ours_fails(tmp_path: Path) -> None:
    seats = {"ours": partial(fake, tmp_path, "w4", "ours", "broken")}
    with pytest.raises(PeerError, match="lacks everything"):
        _ = [line async for line in play_warm_rounds(seats, 1)]


def test_an_environment_that_is_missing_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELSERVE_PEERS", str(tmp_path))
    with pytest.raises(PeerError, match='run `make bench-peers PEERS="openvino"`'):
        PeerEnvironment("openvino").check()
    with pytest.raises(PeerError, match="there is no peer gpt; choose from llamacpp, openvino"):
        PeerEnvironment("gpt")


def test_a_process_tree_counts_children_and_what_they_used() -> None:
    child = "import sys; sum(range(3_000_000)); print(); sys.stdin.read()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        busy = busy_seconds()
        process.stdout.readline()
        tree = ProcessTree(process.pid)
        first, second = tree.pids()
        assert first == process.pid
        assert tree.cpu_seconds() >= ProcessTree(second).cpu_seconds() > 0
        assert tree.peak_mb() > ProcessTree(second).peak_mb() > 1
        assert busy_seconds() > busy
        process.communicate(b"")
    assert tree.peak_mb() == tree.cpu_seconds() == 0


def test_an_environment_of_an_older_recipe_is_built_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELSERVE_PEERS", str(tmp_path))
    environment = PeerEnvironment("llamacpp")
    environment.folder.mkdir()
    assert not environment.is_built()
    environment.note_built()
    environment.check()
    older = dataclasses.replace(environment.recipe, packages=("llama-cpp-python==0.2",))
    monkeypatch.setattr(environment, "recipe", older)
    assert not environment.is_built()
