"""A timeline in words and as rows; what it says when there is nothing, and when a package is missing."""

from __future__ import annotations

import base64
import importlib.util
import sys

import pytest

import kernelserve as ks
from kernelserve_widgets.history import describe_step
from kernelserve_widgets.timeline import Timeline
from tests.helpers.step_records import make_record


def test_a_step_is_told_by_its_number(timeline, run) -> None:
    for record in run.records:
        words = timeline.describe(record.step)
        assert words == describe_step(record, timeline.history)
        assert words.startswith(f"step {record.step}: budget 12; ")
    assert timeline.describe() == timeline.describe(run.records[-1].step)
    assert timeline.steps == [record.step for record in run.records]


def test_the_nearest_step_stands_for_one_that_is_missing() -> None:
    timeline = Timeline([make_record(step, {"r1": 1}) for step in (10, 11, 20)])
    asked = {-5: 10, 10: 10, 13: 11, 18: 20, 99: 20}
    assert {step: timeline.record(step).step for step in asked} == asked


def test_rows_are_what_the_scheduler_did(timeline, run) -> None:
    for moment in run.moments:
        record = moment.record
        rows = {row.request_id: row for row in timeline.rows(record.step)}
        named = {*record.num_scheduled_tokens, *record.preempted_req_ids}
        assert rows.keys() == named | {refusal.request_id for refusal in record.refusals}
        for request_id, row in rows.items():
            assert row.num_tokens == record.num_scheduled_tokens.get(request_id, 0)
            assert row.finished == (request_id in record.finished_req_ids)
            assert row.num_prompt_tokens == run.requests[request_id].num_prompt_tokens
            if fact := moment.live.get(request_id):
                assert row.num_computed_tokens == fact.num_computed_tokens
                assert row.num_generated_tokens == fact.num_generated_tokens
            assert (row.reason != "") <= (row.num_tokens == 0)
    states = {row.state for record in run.records for row in timeline.rows(record.step)}
    assert states == {"prefill", "decode", "preempted", "waiting"}


def test_rows_of_all_steps_add_up(timeline, run) -> None:
    rows = timeline.to_rows()
    for record in run.records:
        of_step = [row for row in rows if row["step"] == record.step]
        assert len(of_step) == len(timeline.rows(record.step))
        used = sum(row["num_tokens"] for row in of_step)
        assert used == record.num_prefill_tokens + record.num_decode_tokens
        for row in of_step:
            assert row["time"] == record.timestamp - run.records[0].timestamp
            assert row["num_used_blocks"] == record.num_used_blocks
            assert row["execute_time"] == 0.5
    for request_id, request in run.requests.items():
        made = [r["num_generated_tokens"] for r in rows if r["request_id"] == request_id]
        assert made == sorted(made)
        assert max(made) - request.num_output_tokens in (
            (0, 1) if request_id in run.aborted else (0,)
        )


def test_a_frame_has_the_rows(timeline) -> None:
    pandas = pytest.importorskip("pandas")
    frame = timeline.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.to_dict("records") == timeline.to_rows()
    assert frame.groupby("step")["num_tokens"].sum().max() <= 12


def test_without_pandas_the_remedy_is_named(timeline, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ks.InvalidConfigError, match=r"pip install pandas, or use to_rows\(\)"):
        timeline.to_frame()


def test_its_static_form_is_text_and_a_picture(timeline) -> None:
    data, metadata = timeline._repr_mimebundle_()
    assert data.keys() == {"text/plain", "image/png"}
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert data["text/plain"].startswith("Timeline(")
    assert timeline.describe() in data["text/plain"]
    assert metadata == {}


def test_without_matplotlib_the_text_is_left(timeline, monkeypatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find(name)
    )
    data, _ = timeline._repr_mimebundle_()
    assert data.keys() == {"text/plain"}
    with pytest.raises(ks.InvalidConfigError, match="pip install matplotlib"):
        timeline.plot()


def test_an_empty_history_is_one_friendly_line(displays) -> None:
    timeline = Timeline([])
    (line,) = timeline._repr_mimebundle_()[0].values()
    assert line.startswith("Nothing has run yet")
    assert "\n" not in line
    assert repr(timeline) == "Timeline(no steps)"
    assert timeline.to_rows() == []
    with pytest.raises(ks.InvalidConfigError, match="nothing has run yet"):
        timeline.describe()
    with pytest.raises(ks.InvalidConfigError, match="nothing has run yet"):
        timeline.plot()


def test_outside_of_a_notebook_it_shows_text(timeline, capsys) -> None:
    timeline.show()
    assert capsys.readouterr().out == timeline.text() + "\n"


def test_repeated_records_change_nothing(run) -> None:
    assert Timeline([*run.records, *run.records]).to_rows() == Timeline(run.records).to_rows()


def test_a_new_engine_starts_a_new_timeline(run) -> None:
    late = [make_record(step, {"x": 1}, timestamp=1e6 + step) for step in range(3)]
    timeline = Timeline([*run.records, *late])
    assert timeline.steps == [0, 1, 2]
    assert {row["request_id"] for row in timeline.to_rows()} == {"x"}


def test_labels_of_callers_are_never_html() -> None:
    from kernelserve_widgets.timeline.step_row import table_html

    timeline = Timeline([make_record(0, {"<b>x</b>": 3})])
    html = table_html(timeline.rows())
    assert "<b>" not in html
    assert "&lt;b&gt;x&lt;/b&gt;" in html


def test_a_long_table_is_cut() -> None:
    timeline = Timeline([make_record(0, {f"r{i}": 1 for i in range(40)})])
    assert timeline.text().endswith("and 24 more")
