"""The views without widgets: a display that is replaced, and a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from kernelserve_widgets.views.display_view import DisplayView
from kernelserve_widgets.views.plain_view import PlainView
from tests.helpers.answers import delta, made_result


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def display_view(num_answers: int = 1, hint: str = "") -> tuple[DisplayView, Clock]:
    clock = Clock()
    view = DisplayView(
        num_answers=num_answers,
        stop=lambda: None,
        stop_hint=hint,
        show_tokens=False,
        snapshot=list,
        clock=clock,
    )
    return view, clock


def test_it_is_replaced_four_times_a_second_at_most(displays) -> None:
    view, clock = display_view()
    view.open()
    for step in range(100):
        clock.now = step * 0.02
        view.update(delta("x"), f"{step} tokens")
    assert len(displays) == 8  # in two seconds, the opening one among them
    assert displays[-1]["data"]["text/plain"].startswith("x" * 80)
    view.finish(made_result("x" * 100))
    assert displays[-1]["data"] == {"text/plain": "x" * 100}
    assert {shown["id"] for shown in displays} == {displays[0]["id"]}
    assert [shown["update"] for shown in displays] == [False] + [True] * 8


def test_nothing_is_sent_while_nothing_changes(displays) -> None:
    view, clock = display_view(hint="press ■")
    view.open()
    for step in range(10):
        clock.now = float(step)
        view.heartbeat("waiting")
    assert [shown["data"]["text/plain"] for shown in displays] == [
        "[… · press ■]",
        "[waiting · press ■]",
    ]


def test_c3_of_a_long_text_only_the_end_is_shown_live(displays) -> None:
    view, clock = display_view()
    view.open()
    for step in range(100):
        clock.now = float(step)
        view.update(delta(f"{step:04} " + "x" * 995), "counting")
    page = displays[-1]["data"]["text/plain"]
    assert page.startswith("[… the last 4,000 characters]\n")
    assert "0099 " in page
    assert max(len(shown["data"]["text/plain"]) for shown in displays) < 4_100


def test_several_answers_have_headings_live_too(displays) -> None:
    view, clock = display_view(2)
    view.open()
    clock.now = 1.0
    view.update(delta("one", "two"), "6 tokens")
    assert displays[-1]["data"]["text/plain"] == "[0]\none\n\n[1]\ntwo\n\n[6 tokens]"


def redirect(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    return stream


def plain_view(num_answers: int = 1) -> PlainView:
    return PlainView(
        num_answers=num_answers, stop=lambda: None, stop_hint="", show_tokens=False, snapshot=list
    )


def test_a_terminal_shows_the_text_as_it_comes(monkeypatch) -> None:
    terminal = redirect(monkeypatch)
    view = plain_view()
    view.open()
    view.update(delta("one "), "")
    assert terminal.getvalue() == "one "
    view.heartbeat("waiting")
    view.update(delta("two"), "")
    view.finish(made_result("one two three"))
    assert terminal.getvalue() == "one two three\n"


def test_the_other_answers_come_at_the_end(monkeypatch) -> None:
    terminal = redirect(monkeypatch)
    view = plain_view(2)
    view.open()
    view.update(delta("a", "x"), "")
    assert terminal.getvalue() == "[0]\na"
    view.finish(made_result("ab\n", "xy", reason="abort"))
    assert terminal.getvalue() == "[0]\nab\n\n[1]\nxy\n[stopped after 5 tokens]\n"


def test_a_cell_keeps_its_stream_when_another_one_redirects(monkeypatch) -> None:
    terminal = redirect(monkeypatch)
    view = plain_view()
    view.open()
    other = redirect(monkeypatch)
    view.update(delta("mine"), "")
    assert (terminal.getvalue(), other.getvalue()) == ("mine", "")
