"""The slider: what is shown for a step, that it never falls behind, and what stays when it is gone."""

from __future__ import annotations

import base64
import time

import ipywidgets
import pytest

from kernelserve_widgets.flusher import Flusher
from kernelserve_widgets.timeline.timeline_view import TimelineView

VIEW_MIME = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def flusher():
    flusher = Flusher()
    yield flusher
    flusher.close()


@pytest.fixture
def view(timeline, flusher, comms, displays) -> TimelineView:
    view = TimelineView(timeline, flusher)
    view.show()
    return view


def wait_until(condition, timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def rest(view: TimelineView, flusher: Flusher) -> None:
    wait_until(lambda: flusher.num_views == 0)


def test_the_picture_comes_first_and_the_widget_after_it(view, displays, timeline) -> None:
    picture, controls = displays
    assert picture["data"].keys() == {"image/png", "text/plain"}
    assert controls["data"][VIEW_MIME]["model_id"] == view.widget.model_id
    assert controls["data"]["text/plain"] == timeline.text(timeline.steps[-1])


def test_moving_the_slider_shows_another_step(view, flusher, displays, timeline) -> None:
    view.slider.value = 7
    rest(view, flusher)
    assert view.step == 7
    assert timeline.describe(7) in view.words.value
    for row in timeline.rows(7):
        assert row.label in view.words.value
    update = displays[-1]
    assert (update["id"], update["update"]) == (displays[0]["id"], True)
    expected = timeline.draw(7, None, caption=False).png()
    assert base64.b64decode(update["data"]["image/png"]) == expected


def test_a_callback_does_no_work(view, flusher, displays) -> None:
    with flusher._flushing:  # nothing can be drawn now
        start = time.perf_counter()
        for _ in range(20):
            for step in range(12):
                view.slider.value = step
        assert (time.perf_counter() - start) / 240 < 0.005
        assert len(displays) == 2
    rest(view, flusher)


def test_a_fast_slider_is_followed_not_queued(view, flusher, displays, timeline) -> None:
    for _ in range(30):
        for step in timeline.steps:
            view.slider.value = step
    view.slider.value = 5
    rest(view, flusher)
    assert view.step == 5
    assert timeline.describe(5) in view.words.value
    num_values = 30 * len(timeline.steps)
    assert len(displays) - 2 < num_values / 20
    assert displays[-1]["data"]["text/plain"] == timeline.text(5)


def test_the_last_position_is_never_lost(view, flusher, timeline) -> None:
    for number in range(15):
        step = timeline.steps[number % len(timeline.steps)]
        view.min_interval_s = 0.0
        view.slider.value = step
        wait_until(lambda step=step: view.step == step)


def test_nothing_runs_while_nobody_moves(view, flusher) -> None:
    assert flusher.num_views == 0
    view.slider.value = 3
    rest(view, flusher)
    assert flusher._thread is None or not flusher.num_views


def test_buttons_step_through(view, flusher, timeline) -> None:
    steps = timeline.steps
    seen = []
    for name in ("first", "previous", "next", "next", "previous", "last", "next"):
        view.buttons[name].click()
        seen.append(view.slider.value)
    last = steps[-1]
    assert seen == [steps[0], steps[0], steps[1], steps[2], steps[1], last, last]
    rest(view, flusher)
    assert view.step == last


def test_zooming_draws_the_steps_around(timeline, flusher, comms, displays) -> None:
    view = TimelineView(timeline, flusher)
    view.show()
    assert view.zoom.label == "all steps"
    view.zoom.options = [("all steps", 0), ("4 steps", 4)]
    view.slider.value = 8
    view.zoom.value = 4
    rest(view, flusher)
    shown = base64.b64decode(displays[-1]["data"]["image/png"])
    assert shown == timeline.draw(8, 4, caption=False).png()
    view.slider.value = 20  # not in that window
    rest(view, flusher)
    shown = base64.b64decode(displays[-1]["data"]["image/png"])
    assert shown == timeline.draw(20, 4, caption=False).png()


def test_closing_leaves_picture_and_words(view, flusher, displays, comms, timeline) -> None:
    view.slider.value = 7
    rest(view, flusher)
    view.close()
    assert comms.num_open == 0
    picture, controls = displays[-2:]
    assert picture["id"] == displays[0]["id"]
    expected = timeline.draw(7, None, caption=True).png()
    assert base64.b64decode(picture["data"]["image/png"]) == expected
    assert (controls["id"], controls["update"]) == (displays[1]["id"], True)
    assert controls["data"] == {"text/plain": timeline.text(7)}
    num_displays = len(displays)
    view.close()
    view._note(None)
    assert flusher.num_views == 0
    assert len(displays) == num_displays


def test_no_words_are_saved_with_a_closed_widget(view, flusher, comms) -> None:
    view.close()
    assert not any("budget" in str(state) for state in comms.saved_state().values())


def test_all_widgets_are_from_the_standard_set(view) -> None:
    def walk(widget):
        yield widget
        for child in getattr(widget, "children", ()):
            yield from walk(child)

    assert all(type(one).__module__.startswith("ipywidgets.") for one in walk(view.widget))
    assert isinstance(view.slider, ipywidgets.IntSlider)
