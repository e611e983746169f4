"""The workloads as token ids, the same on every machine and for every peer."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

__all__ = ["WARM_UP", "WORKLOADS", "Workload", "make_rounds", "make_workloads"]

_SEED = 20261130
_LOWEST_ID = 1_000
_HIGHEST_ID = 40_000
WARM_UP = 0
"""The repetition that is run but not counted."""

WORKLOADS = {
    "w1": "one stream: 128 tokens in, 256 out",
    "w2": "32 at once: 128 in, 128 out",
    "w3": "32 at once that share a prefix of 1,024: 32 more in, 64 out",
    "w4": "one prompt of 2,048 tokens: 1 out",
    "w5": "cold start: from the start of the process to the first token of a 128-token prompt",
}


@dataclass(frozen=True, slots=True)
class Workload:
    """One repetition: prompts that are sent together, and how many tokens each gets."""

    name: str
    repetition: int
    prompts: list[list[int]]
    max_tokens: int

    def moved(self, repetition: int, by: int) -> Workload:
        """Return the same with every id moved: what was shared is shared still, and no prefix cache knows it."""
        span = _HIGHEST_ID - _LOWEST_ID
        prompts = [
            [_LOWEST_ID + (token - _LOWEST_ID + by) % span for token in prompt]
            for prompt in self.prompts
        ]
        return replace(self, repetition=repetition, prompts=prompts)

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(map(len, self.prompts))

    @property
    def num_output_tokens(self) -> int:
        """Tokens that all answers have together."""
        return len(self.prompts) * self.max_tokens


def make_workloads() -> dict[str, list[Workload]]:
    """Name -> its repetitions. The order of the draws is what makes the ids equal everywhere."""
    source = random.Random(_SEED)

    def ids(count: int) -> list[int]:
        return [source.randrange(_LOWEST_ID, _HIGHEST_ID) for _ in range(count)]

    made = {
        "w1": [Workload("w1", i, [ids(128)], 256) for i in range(4)],
        "w2": [Workload("w2", i, [ids(128) for _ in range(32)], 128) for i in range(4)],
        "w4": [Workload("w4", i, [ids(2048)], 1) for i in range(6)],
        "w5": [Workload("w5", 0, [ids(128)], 1)],
    }
    made["w3"] = []
    for i in range(4):
        prefix = ids(1024)
        prompts = [prefix + ids(32) for _ in range(32)]
        made["w3"].append(Workload("w3", i, prompts, 64))
    return made


def make_rounds(name: str, rounds: int) -> list[Workload]:
    """Return the warm-up and `rounds` repetitions, no two alike; those beyond the drawn ones are moved copies."""
    warm_up, *drawn = make_workloads()[name]
    if not drawn:
        return [warm_up]
    return [
        warm_up,
        *(drawn[i % len(drawn)].moved(i + 1, by=i // len(drawn)) for i in range(rounds)),
    ]
