"""Ours and its peers in turn, round by round, on the same machine in the same run."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kernelserve.bench.comparison import OURS
from kernelserve.bench.peer_environment import PeerEnvironment
from kernelserve.bench.peer_jobs import PeerJobs
from kernelserve.bench.peer_process import PeerProcess
from kernelserve.bench.rounds import play_cold_rounds, play_warm_rounds
from kernelserve.child_environment import child_environment
from kernelserve.client.engine_options import EngineOptions
from kernelserve.paths import log_dir

__all__ = ["measure_against"]

_SCRIPTS = Path(__file__).parent / "peers"
_Player = Callable[[str], PeerProcess]
"""workload -> a player of it that is not started yet"""


async def measure_against(
    peers: Sequence[str], workloads: Sequence[str], options: EngineOptions, rounds: int
) -> AsyncIterator[dict[str, Any]]:
    """Yield a line for each turn of each player, and one for each peer that failed, which is left out from then on.

    A peer is `name` or `name:variant`. Raises PeerError before anything runs if an environment is missing.
    """
    with tempfile.TemporaryDirectory(prefix="kernelserve-bench-") as folder:
        jobs = PeerJobs(Path(folder), rounds)
        # Seen from there, `peers` is a package of its own, with nothing of ours beside it to be imported by mistake.
        (jobs.folder / _SCRIPTS.name).symlink_to(_SCRIPTS)
        players: dict[str, _Player] = {OURS: _our_player(jobs, options)}
        players |= {peer: _peer_player(jobs, peer) for peer in peers}
        for workload in workloads:
            play = play_cold_rounds if workload == "w5" else play_warm_rounds
            seats = {name: partial(player, workload) for name, player in players.items()}
            async for line in play(seats, rounds):
                if "error" in line:
                    del players[line["player"]]
                yield {"bench": workload} | line


def _our_player(jobs: PeerJobs, options: EngineOptions) -> _Player:
    fields = {"variant": "", "models": "", "options": dict(options)}

    def make(workload: str) -> PeerProcess:
        job = jobs.write(OURS, workload, **fields)
        return PeerProcess(
            OURS,
            [sys.executable, "-m", "kernelserve.bench.own_player", str(job)],
            folder=jobs.folder,
            variables=child_environment(),
            log=log_dir() / "bench-ours.log",
        )

    return make


def _peer_player(jobs: PeerJobs, peer: str) -> _Player:
    name, _, variant = peer.partition(":")
    environment = PeerEnvironment(name)
    environment.check()
    variables = environment.variables()
    fields = {"variant": variant, "models": str(environment.models), "options": {}}

    def make(workload: str) -> PeerProcess:
        job = jobs.write(peer, workload, **fields)
        return PeerProcess(
            peer,
            [str(environment.python), "-m", f"{_SCRIPTS.name}.{name}", str(job)],
            folder=jobs.folder,
            variables=variables,
            log=log_dir() / f"bench-{peer.replace(':', '-')}.log",
        )

    return make
