"""The command line, with our real engine and a peer that only waits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelserve.bench.peer_environment import PeerEnvironment

ROOT = Path(__file__).parents[2]
FAKE = Path(__file__).with_name("fake_peer.py")


def run_against(*arguments: str, environments: Path, peer: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kernelserve.bench", *arguments, "--against", peer],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env=os.environ | {"KERNELSERVE_PEERS": str(environments)},
    )


def install_fake(environment: Path) -> None:
    """Lay an environment whose interpreter starts the fake peer, whatever it is told to run."""
    python = environment / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" "{FAKE}" "$3"\n')
    python.chmod(0o755)
    PeerEnvironment(environment.name).note_built()


@pytest.mark.process
def test_ours_and_a_peer_are_measured_in_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELSERVE_PEERS", str(tmp_path))
    install_fake(tmp_path / "transformers")
    copy = tmp_path / "lines.json"
    result = run_against(
        "w5", "--reps", "1", "--json", str(copy), environments=tmp_path, peer="transformers"
    )
    assert result.returncode == 0, result.stderr
    machine, first, second = map(json.loads, copy.read_text().splitlines())
    assert machine["bench"] == "machine"
    assert {first["player"], second["player"]} == {"ours", "transformers"}
    [ours] = [line for line in (first, second) if line["player"] == "ours"]
    assert ours["cold_s"] > ours["wall_s"] > 0
    assert ours["peak_mb"] > 150  # client and engine
    _, _, row, _, *players = result.stdout.splitlines()[3:]
    assert row.split()[:3] == ["w5", "cold_s", "less"]
    assert "transformers *" in row
    assert players[0].split(":")[0] in ("ours", "transformers")


def test_a_missing_peer_is_named_before_anything_is_measured(tmp_path: Path) -> None:
    result = run_against("w1", environments=tmp_path, peer="llamacpp")
    assert result.returncode == 1
    assert result.stderr == (
        f"kernelserve.bench: llamacpp is not installed in {tmp_path / 'llamacpp'}: "
        'run `make bench-peers PEERS="llamacpp"`\n'
    )


def test_only_workloads_have_peers(tmp_path: Path) -> None:
    result = run_against("engine", environments=tmp_path, peer="llamacpp")
    assert result.returncode == 2
    assert "engine has no peer; choose from w1, w2, w3, w4, w5" in result.stderr
