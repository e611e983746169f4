from __future__ import annotations

import hashlib
import json

from kernelserve.bench.workloads import WORKLOADS, make_workloads


def test_ids_never_change() -> None:
    """Figures of two versions can only be compared while the ids are the same."""
    made = make_workloads()
    ids = json.dumps([[workload.prompts for workload in made[name]] for name in sorted(made)])
    assert hashlib.sha256(ids.encode()).hexdigest()[:16] == "b92b0534db9c5964"


def test_shapes_are_those_of_the_design() -> None:
    made = make_workloads()
    assert set(made) == set(WORKLOADS)
    shapes = {
        name: (len(work.prompts), len(work.prompts[0]), work.max_tokens)
        for name, (work, *_) in made.items()
    }
    assert shapes == {
        "w1": (1, 128, 256),
        "w2": (32, 128, 128),
        "w3": (32, 1056, 64),
        "w4": (1, 2048, 1),
        "w5": (1, 128, 1),
    }
    first = made["w3"][1].prompts
    assert all(prompt[:1024] == first[0][:1024] for prompt in first)
    assert len({tuple(prompt) for prompt in first}) == 32
