"""What the players of a comparison are told to do, as files."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelserve.bench.workloads import make_rounds

__all__ = ["PeerJobs"]


@dataclass(frozen=True, slots=True)
class PeerJobs:
    """Writes jobs, the fields of `kernelserve.bench.peers.player.Job`, into one folder."""

    folder: Path
    rounds: int

    def write(self, player: str, workload: str, **fields: Any) -> Path:
        """Return the file with the repetitions of a workload for one player, and `fields` beside them."""
        repetitions = [
            {"prompts": each.prompts, "max_tokens": each.max_tokens}
            for each in make_rounds(workload, self.rounds)
        ]
        job = {"repetitions": repetitions, "threads": len(os.sched_getaffinity(0)), **fields}
        path = self.folder / f"{player.replace(':', '-')}-{workload}.json"
        path.write_text(json.dumps(job))
        return path
