"""The order in which players of one workload take their turns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from kernelserve.bench.comparison import OURS
from kernelserve.bench.peer_error import PeerError
from kernelserve.bench.peer_process import PeerProcess
from kernelserve.bench.workloads import WARM_UP

__all__ = ["Seat", "play_cold_rounds", "play_warm_rounds"]

Seat = Callable[[], PeerProcess]
"""Makes a player, not started yet."""


async def play_warm_rounds(seats: Mapping[str, Seat], rounds: int) -> AsyncIterator[dict[str, Any]]:
    """All players stay loaded; in each round every one runs the same repetition.

    Yields a line for each turn, and one for a peer that fails, which plays no more. Raises PeerError if ours fails.
    """
    async with AsyncExitStack() as stack:
        players: dict[str, PeerProcess] = {}
        for name, seat in seats.items():
            try:
                player = await stack.enter_async_context(seat())
                await player.run(WARM_UP)
            except PeerError as error:
                yield _failure(name, error)
            else:
                players[name] = player
        for number in range(1, rounds + 1):
            for name in _rotated(players, number):
                try:
                    figures = await players[name].run(number)
                except PeerError as error:
                    del players[name]
                    yield _failure(name, error)
                else:
                    yield _line(players[name], number, figures)


async def play_cold_rounds(seats: Mapping[str, Seat], rounds: int) -> AsyncIterator[dict[str, Any]]:
    """A new process for each turn, from its start to its first answer. Yields as `play_warm_rounds`.

    An uncounted round goes before, so that all files are in the page cache.
    """
    left = dict(seats)
    for number in range(rounds + 1):
        for name in _rotated(left, number):
            try:
                async with left[name]() as player:
                    figures = await player.run(WARM_UP)
            except PeerError as error:
                del left[name]
                yield _failure(name, error)
            else:
                if number != WARM_UP:
                    yield _line(player, number, {"cold_s": figures["since_start_s"]} | figures)


def _rotated(players: Mapping[str, object], number: int) -> list[str]:
    """The order of a round: another player begins each time, so that nobody always runs after the same."""
    names = list(players)
    first = number % len(names) if names else 0
    return names[first:] + names[:first]


def _line(player: PeerProcess, number: int, figures: dict[str, Any]) -> dict[str, Any]:
    return {"player": player.name, "round": number, "what": player.what} | figures


def _failure(name: str, error: PeerError) -> dict[str, Any]:
    if name == OURS:
        raise error
    return {"player": name, "error": str(error)}
