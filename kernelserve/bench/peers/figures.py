"""What a repetition says, out of the times at which its tokens arrived: one arithmetic for ours and for every peer."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

__all__ = ["figures"]


def figures(
    num_prompt_tokens: int, started: float, arrivals: Sequence[Sequence[float]]
) -> dict[str, Any]:
    """Return wall time, first token and rates. `arrivals`: for each prompt the seconds, on the clock of `started`."""
    wall = max(times[-1] for times in arrivals) - started
    count = sum(map(len, arrivals))
    result = {
        "wall_s": round(wall, 3),
        "ttft_ms": round(1e3 * statistics.mean(times[0] - started for times in arrivals), 2),
        "out_tok_s": round(count / wall, 1),
        "total_tok_s": round((count + num_prompt_tokens) / wall, 1),
    }
    return result | _one_stream(num_prompt_tokens, started, arrivals)


def _one_stream(
    num_prompt_tokens: int, started: float, arrivals: Sequence[Sequence[float]]
) -> dict[str, Any]:
    """Figures that only mean something when a request ran alone."""
    if len(arrivals) > 1:
        return {}
    [times] = arrivals
    result = {"prompt_tok_s": round(num_prompt_tokens / (times[0] - started), 1)}
    if len(times) > 1:
        gaps = sorted(b - a for a, b in pairwise(times))
        result |= {
            "decode_tok_s": round(len(gaps) / (times[-1] - times[0]), 2),
            "itl_ms": round(1e3 * statistics.median(gaps), 3),
            "itl_p99_ms": round(1e3 * gaps[int(len(gaps) * 0.99)], 3),
        }
    return result
