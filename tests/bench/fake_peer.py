"""A player without an engine, with a millisecond for each token. Its variants fail."""

import sys
import time

from kernelserve.bench.peers.player import Job, Player, play


def load(job: Job) -> Player:
    if job.variant == "broken":
        raise SystemExit("this processor lacks everything")
    sys.stdout.write("a library that talks\n")

    def answer(prompts: list[list[int]], max_tokens: int) -> list[list[float]]:
        if job.variant == "endless":
            time.sleep(1000)
        times = []
        for _ in range(0 if job.variant == "silent" else max_tokens):
            time.sleep(0.001)
            times.append(time.perf_counter())
        return [times] * len(prompts)

    return Player(f"fake, {job.threads} threads, {job.streams} x {job.context}", answer)


if __name__ == "__main__":
    play(load)
