"""The side of a peer: a process that loads one engine and then runs a repetition for every line it reads.

It needs the standard library alone. Lines are JSON: the job comes as the only argument, `{"ready": ...}` goes out when
the engine is loaded, a number comes in, the figures of that repetition go out, and so on until the input ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from .figures import figures

__all__ = ["Answer", "Job", "Player", "play"]

Answer = Callable[[list[list[int]], int], list[list[float]]]
"""(prompts, tokens for each) -> for each prompt the `time.perf_counter()` of every token."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a player is started with."""

    repetitions: list[dict[str, Any]]
    """Of one workload: `prompts` as token ids, and `max_tokens`."""
    variant: str
    """Which weights or precision; empty for the best on this machine."""
    threads: int
    models: Path
    """The folder of the models that `make bench-peers` has made."""
    options: dict[str, Any]

    @property
    def streams(self) -> int:
        """How many prompts are sent at once."""
        return max(len(each["prompts"]) for each in self.repetitions)

    @property
    def context(self) -> int:
        """Tokens of the longest prompt with its answer."""
        return max(
            len(prompt) + int(each["max_tokens"])
            for each in self.repetitions
            for prompt in each["prompts"]
        )


@dataclass(frozen=True, slots=True)
class Player:
    """A loaded engine: what it is, in words, how it answers, and how it ends."""

    what: str
    answer: Answer
    close: Callable[[], object] = lambda: None


def play(load: Callable[[Job], Player]) -> None:
    """Serve the lines of standard input. What the engine's libraries print goes to standard error."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    orders: SimpleQueue[int | None] = SimpleQueue()
    busy = threading.Event()
    busy.set()
    threading.Thread(target=_read_orders, args=(orders, busy), daemon=True).start()
    job = _read_job(Path(sys.argv[1]))
    player = load(job)
    _say(lines, {"ready": player.what})
    while True:
        busy.clear()
        order = orders.get()
        if order is None:
            break
        busy.set()
        _say(lines, _repeat(player.answer, **job.repetitions[order]))
    player.close()


def _read_orders(orders: SimpleQueue[int | None], busy: threading.Event) -> None:
    """Pass on what comes in. At its end nobody waits for an answer: one that is being made ends with the process."""
    for line in sys.stdin:
        orders.put(int(line))
    if busy.is_set():
        os._exit(1)
    orders.put(None)


def _read_job(path: Path) -> Job:
    fields = json.loads(path.read_text())
    return Job(**fields | {"models": Path(fields["models"])})


def _repeat(answer: Answer, prompts: list[list[int]], max_tokens: int) -> dict[str, Any]:
    started = time.perf_counter()
    arrivals = answer(prompts, max_tokens)
    got = list(map(len, arrivals))
    if got != [max_tokens] * len(prompts):
        raise SystemExit(f"asked for {len(prompts)} x {max_tokens} tokens, got {got}")
    return figures(sum(map(len, prompts)), started, arrivals)


def _say(lines: Any, message: dict[str, Any]) -> None:
    lines.write(json.dumps(message) + "\n")
    lines.flush()
