"""The messages of a live answer, exactly, and what is left of it when it has ended."""

from __future__ import annotations

import json
import random
import threading
import time

import ipywidgets
import pytest

from kernelserve_widgets.views.widget_view import WidgetView
from tests.helpers.answers import delta, made_result, position, token_delta

VIEW_MIME = "application/vnd.jupyter.widget-view+json"


class Run:
    """A view with the result that it shows, driven as a GenerationRun does."""

    def __init__(
        self, num_answers: int = 1, *, show_tokens: bool = False, stop=lambda: None
    ) -> None:
        self.result = made_result(*[""] * num_answers, reason=None)
        self.view = WidgetView(
            num_answers=num_answers,
            stop=stop,
            stop_hint="",
            show_tokens=show_tokens,
            snapshot=self.result.snapshot,
        )
        self.view.open()

    def feed(self, new, counters: str = "counting") -> None:
        self.result.merge(new)
        self.view.update(new, counters)

    def end(self, reason: str = "stop") -> None:
        for output in self.result.outputs:
            output.finish_reason = reason
        self.view.finish(self.result)


def test_each_piece_is_sent_once_with_its_number(comms, displays) -> None:
    run = Run()
    run.feed(delta("one "))
    run.feed(delta("two"))
    run.end()
    sent = comms.comms[0].custom
    assert sent[0] == {"s": 1, "d": "one ", "c": "counting"}
    assert sent[1] == {"s": 2, "d": "two"}  # the counters were sent a moment ago
    assert sent[2] == {"s": 3, "end": run.result.summary()}
    assert len(sent) == 3


def test_several_answers_go_in_one_message(comms, displays) -> None:
    run = Run(3)
    run.feed(delta("a", "", "c"))
    assert comms.comms[0].custom == [{"s": 1, "a": [[0, "a"], [2, "c"]], "c": "counting"}]


def test_the_static_output_takes_the_place_of_the_widget(comms, displays) -> None:
    run = Run()
    run.feed(delta("text"))
    run.end()
    live, static = displays
    assert live["data"][VIEW_MIME]["model_id"] == comms.comms[0].comm_id
    assert (live["update"], static["update"]) == (False, True)
    assert live["id"] == static["id"] is not None
    assert static["data"] == {"text/plain": "text"}
    assert "kernelserve" in static["metadata"]


def test_a_question_is_answered_with_everything_that_was_sent(comms, displays) -> None:
    run = Run(2)
    run.feed(delta("ab", "x"))
    run.result.merge(delta("not yet sent", "not yet sent"))
    comms.comms[0].click({"kind": "sync"})
    assert comms.comms[0].custom[-1] == {"s": 1, "full": ["ab", "x"], "c": "counting"}


def test_a_page_that_is_loaded_later_reads_the_same_from_the_state(comms, displays) -> None:
    run = Run()
    options = {"answers": 1, "hint": "", "tokens": False}
    assert comms.comms[0].messages[0][1]["state"]["state"] == options | {"fresh": True}
    run.feed(delta("ab"))
    comms.comms[0].handle_msg({"content": {"data": {"method": "request_state"}}, "buffers": []})
    snapshot = {"s": 1, "full": ["ab"], "c": "counting"}
    assert comms.comms[0].messages[-1][1]["state"]["state"] == options | snapshot


def test_c10_the_text_can_be_asked_for_after_the_end(comms, displays) -> None:
    run = Run()
    run.feed(delta("ab"))
    run.end()
    comms.comms[0].click({"kind": "sync"})
    answer = comms.comms[0].custom[-1]
    assert (answer["full"], answer["end"]) == (["ab"], run.result.summary())


def test_what_never_came_as_a_delta_comes_with_the_end(comms, displays) -> None:
    run = Run()
    run.feed(delta("ab"))
    run.result.merge(delta("cd"))
    run.end()
    assert comms.comms[0].custom[-1] == {"s": 2, "full": ["abcd"], "end": run.result.summary()}


def test_a_failure_says_so_in_the_last_line(comms, displays) -> None:
    run = Run()
    run.feed(delta("ab"))
    run.result.fail(RuntimeError("the engine died\nat length"))
    run.end("error")
    assert displays[-1]["data"]["text/plain"] == "ab\n[failed after 2 tokens: the engine died]"
    assert comms.comms[0].custom[-1]["end"].endswith("[failed after 2 tokens: the engine died]")


def test_c17_stop_is_called_from_any_thread_and_all_views_hear_of_it(comms, displays) -> None:
    stopped = []
    run = Run(stop=lambda: stopped.append(threading.current_thread().name))
    thread = threading.Thread(target=comms.comms[0].click, args=[{"kind": "stop"}], name="subshell")
    thread.start()
    thread.join()
    assert stopped == ["subshell"]
    assert comms.comms[0].custom == [{"stopping": True}]
    run.end("abort")
    comms.comms[0].click({"kind": "stop"})
    assert stopped == ["subshell"]


def test_messages_that_are_none_of_ours_are_ignored(comms, displays) -> None:
    Run()
    for content in ({}, {"kind": "anywidget-command"}, {"kind": 3}, "sync", None, ["stop"]):
        comms.comms[0].click(content)
    assert comms.comms[0].custom == []


def test_questions_in_other_threads_never_see_half_a_message(comms, displays) -> None:
    run = Run()
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            comms.comms[0].click({"kind": "sync"})

    asker = threading.Thread(target=ask)
    asker.start()
    for number in range(300):
        run.feed(delta(f"<{number}>"))
    done.set()
    asker.join()
    text_at = {0: ""}
    for message in comms.comms[0].custom:
        if "d" in message:
            text_at[message["s"]] = text_at[message["s"] - 1] + message["d"]
        elif "full" in message:
            assert message["full"] == [text_at[message["s"]]]
    assert len(text_at) == 301


@pytest.fixture
def stopped_clock(monkeypatch):
    """Time moves when the test says so: 0.1 s for each call of the fixture's value."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def tick() -> None:
        now[0] += 0.1

    return tick


def test_c3_a_long_stream_costs_what_it_is_long(comms, displays, stopped_clock) -> None:
    """8,000 tokens at 100 a second, shown ten times a second."""
    run = Run()
    words = random.Random(1)
    for flush in range(800):
        stopped_clock()
        text = "".join(" " + "x" * words.randint(2, 5) for _ in range(10))
        run.feed(delta(text), f"{10 * flush:,} tokens · 99.9 tok/s")
    run.end()
    sizes = comms.comms[0].sizes
    assert sum(sizes) <= 3 * len(run.result.text)
    assert sum(sizes[790:800]) <= 2 * sum(sizes[5:15])
    assert len(sizes) == 802  # the end, and then a smaller script
    saved = json.dumps(comms.saved_state())
    assert run.result.text[:40] not in saved


def test_counters_alone_are_sent_only_when_they_change(comms, displays, stopped_clock) -> None:
    run = Run()
    run.view.heartbeat("waiting: 2 ahead")
    run.view.heartbeat("waiting: 2 ahead")
    run.view.heartbeat("waiting: 1 ahead")
    assert comms.comms[0].custom == [
        {"n": 0, "c": "waiting: 2 ahead"},
        {"n": 0, "c": "waiting: 1 ahead"},
    ]


def test_c4_the_number_of_comms_stays_the_same(comms, displays) -> None:
    before = len(ipywidgets.Widget.get_manager_state()["state"])
    counts = []
    for _ in range(200):
        run = Run()
        run.feed(delta("some text"))
        run.end()
        counts.append(comms.num_open)
    assert set(counts[10:]) == {4}
    assert len(comms.comms) == 200  # no Layout, no Style
    assert len(ipywidgets.Widget.get_manager_state()["state"]) == before + 4


def test_c8_a_hundred_runs_add_little_to_a_saved_notebook(comms, displays) -> None:
    sizes = []
    for _ in range(100):
        run = Run()
        run.feed(delta("some text " * 500))
        run.end()
        sizes.append(len(json.dumps(comms.saved_state())))
    assert (
        sizes[-1] - sizes[0] < 40_000
    )  # nbclient forgets none of them; JupyterLab keeps only the open ones
    assert comms.num_open * len(json.dumps(comms.comms[-1].messages[-1][1])) < 10_000
    assert "some text" not in json.dumps(comms.saved_state())


def test_the_scripts_are_small_and_import_nothing() -> None:
    from kernelserve_widgets.views.static_files import script, style

    for name in ("stream", "tokens", "keeper"):
        assert len(script(name).encode()) + len(style().encode()) < 20_000
        assert "import " not in script(name)
        assert "http" not in script(name) + style()
        assert "innerHTML" not in script(name)


def test_tokens_come_with_their_probabilities_and_alternatives(comms, displays) -> None:
    run = Run(show_tokens=True)
    run.feed(token_delta([position("The", 0.75, A=0.25), position(" <b>", 0.5)]))
    assert comms.comms[0].custom[0]["d"] == [
        ["The", 0.75, [["The", 0.75], ["A", 0.25]]],
        [" <b>", 0.5, [[" <b>", 0.5]]],
    ]
    comms.comms[0].click({"kind": "sync"})
    assert comms.comms[0].custom[1]["full"] == [comms.comms[0].custom[0]["d"]]
    run.end()
    assert "full" not in comms.comms[0].custom[-1]
    assert list(displays[-1]["data"]) == ["text/html"]
    assert "<b>" not in displays[-1]["data"]["text/html"]


def test_tokens_that_a_stop_string_cuts_off_are_gone_at_the_end(comms, displays) -> None:
    run = Run(show_tokens=True)
    run.feed(token_delta([position("ab", 0.5), position("END", 0.5)], text="ab"))
    run.end()
    assert [token[0] for token in comms.comms[0].custom[-1]["full"][0]] == ["ab"]


def test_without_logprobs_the_token_view_shows_text(comms, displays) -> None:
    run = Run(show_tokens=True)
    run.feed(delta("plain"))
    run.end()
    assert comms.comms[0].custom[0]["d"] == "plain"
    assert displays[-1]["data"] == {"text/plain": "plain"}


def test_a_view_that_was_never_opened_shows_the_end(comms, displays) -> None:
    result = made_result("text")
    view = WidgetView(
        num_answers=1, stop=lambda: None, stop_hint="", show_tokens=False, snapshot=result.snapshot
    )
    view.update(delta("text"), "")
    view.heartbeat("")
    view.finish(result)
    assert displays[0]["data"] == {"text/plain": "text"}
    assert comms.comms == []
