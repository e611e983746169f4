from __future__ import annotations

from typing import Any

import pytest

from kernelserve.bench.comparison import compare, render
from kernelserve.bench.peers.figures import figures


def line(bench: str, player: str, number: int, **measured: float) -> dict[str, Any]:
    return {"bench": bench, "player": player, "round": number, "what": f"{player} 1.0"} | measured


def test_ratios_are_of_pairs_not_of_medians() -> None:
    """A machine that is twice as slow in one round slows both, and so changes no ratio."""
    speeds = {1: (120.0, 100.0), 2: (60.0, 50.0), 3: (240.0, 100.0)}
    lines = [
        line("w3", player, number, out_tok_s=speed)
        for number, pair in speeds.items()
        for player, speed in zip(("ours", "fast"), pair, strict=True)
    ]
    [found] = compare(lines)
    assert (found.ratio, found.lowest, found.highest, found.rounds) == (1.2, 1.2, 2.4, 3)
    assert (found.ours, found.theirs) == (120.0, 100.0)


def test_a_round_that_one_of_a_pair_lacks_does_not_count() -> None:
    lines = [
        line("w4", "ours", 1, prompt_tok_s=10),
        line("w4", "ours", 2, prompt_tok_s=30),
        line("w4", "gone", 2, prompt_tok_s=10),
        {"bench": "w4", "player": "gone", "error": "it fell over"},
        {"bench": "machine", "cores": 2},
    ]
    [found] = compare(lines)
    assert (found.ratio, found.rounds) == (3.0, 1)


def test_the_strongest_peer_comes_first_whichever_way_is_better() -> None:
    lines = [
        line("w5", "ours", 1, cold_s=2.0),
        line("w5", "slow", 1, cold_s=4.0),
        line("w5", "quick", 1, cold_s=1.0),
        line("w3", "ours", 1, out_tok_s=90),
        line("w3", "slow", 1, out_tok_s=30),
        line("w3", "quick", 1, out_tok_s=1500),
        {"bench": "w5", "player": "absent", "error": "no such instruction"},
    ]
    table = render(lines).splitlines()
    cells = [row.split() for row in table[1:5]]
    assert [row[0] for row in cells] == ["w3", "w3", "w5", "w5"]
    assert cells[0][3:] == ["90", "quick", "*", "1,500", "0.06", "0.06", "0.06"]
    assert cells[1][3:] == ["90", "slow", "30", "3.00", "3.00", "3.00"]
    assert cells[2][2:] == ["less", "2", "quick", "*", "1", "2.00", "2.00", "2.00"]
    assert "quick: quick 1.0" in table
    assert table[-1] == "absent failed: no such instruction"


def test_figures_of_one_stream_and_of_many() -> None:
    alone = figures(10, 1.0, [[1.5, 1.6, 1.8]])
    assert alone == {
        "wall_s": 0.8,
        "ttft_ms": 500.0,
        "out_tok_s": 3.8,
        "total_tok_s": 16.2,
        "prompt_tok_s": 20.0,
        "decode_tok_s": pytest.approx(6.67),
        "itl_ms": 150.0,
        "itl_p99_ms": 200.0,
    }
    many = figures(20, 1.0, [[1.5, 2.0], [1.7, 3.0]])
    assert many == {"wall_s": 2.0, "ttft_ms": 600.0, "out_tok_s": 2.0, "total_tok_s": 12.0}
