"""The axis is linear where work is done and short where nothing happens."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kernelserve_widgets.history import RequestLife
from kernelserve_widgets.timeline.row_layout import RowLayout
from kernelserve_widgets.timeline.time_axis import TimeAxis
from tests.helpers.step_records import make_record


def records_at(*times: float):
    return [make_record(i, timestamp=t, execute_time=1.0) for i, t in enumerate(times)]


def test_without_pauses_it_counts_seconds() -> None:
    axis = TimeAxis(records_at(10, 11, 12), begin=9.98)
    assert axis.pauses == []
    assert axis.at(9.98) == 0
    assert axis.at(11.5) == pytest.approx(1.52)
    assert axis.length == pytest.approx(3.02)


def test_a_long_pause_is_cut_and_remembered() -> None:
    axis = TimeAxis(records_at(10, 11, 600, 601), begin=10)
    (pause,) = axis.pauses
    assert pause.seconds == pytest.approx(588)
    assert pause.start == pytest.approx(axis.at(12)) == pytest.approx(2)
    assert pause.end == pytest.approx(axis.at(600)) == pytest.approx(2.08)
    assert axis.at(601.5) - axis.at(600) == pytest.approx(1.5)
    assert axis.length == pytest.approx(4.08)


def test_order_is_kept_everywhere() -> None:
    axis = TimeAxis(records_at(0, 1, 50, 51, 52, 300), begin=-3)
    places = [axis.at(t / 4) for t in range(-20, 1300)]
    assert places == sorted(places)
    assert len(set(places)) == len(places)


def test_before_and_after_it_goes_on() -> None:
    axis = TimeAxis(records_at(10), begin=10)
    assert axis.at(8) == pytest.approx(-2)
    assert axis.at(13) == pytest.approx(3)


def life(number: int, start: float, end: float | None) -> RequestLife:
    made = RequestLife(f"r{number}", f"r{number}", start)
    made.ended_at = end
    return made


def test_few_requests_have_a_row_each() -> None:
    layout = RowLayout.of([life(i, i, i + 0.5) for i in range(24)], now=99)
    assert layout.rows == {f"r{i}": i for i in range(24)}
    assert not layout.is_shared


def test_many_share_rows_without_touching() -> None:
    lives = [life(i, i, i + 2.5) for i in range(60)]
    layout = RowLayout.of(lives, now=99)
    assert layout.is_shared
    assert layout.num_rows == 3
    for row in range(3):
        on_row = [one for one in lives if layout.rows[one.request_id] == row]
        assert all((a.ended_at or 99) <= b.queued_at for a, b in pairwise(on_row))


def test_those_without_room_are_counted() -> None:
    layout = RowLayout.of([life(i, i, None) for i in range(60)], now=99)
    assert (layout.num_rows, layout.num_hidden, len(layout.rows)) == (48, 12, 48)
