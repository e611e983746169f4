"""static/stream.js in a real browser, with the real kernel side at the other end of a line that may lose messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelserve_widgets.views.static_files import ended_script
from kernelserve_widgets.views.widget_view import WidgetView
from tests.helpers.answers import delta, made_result, position, token_delta
from tests.helpers.recording_comm import CommLog, record_comms
from tests.helpers.widget_page import WidgetPage, open_widget_page

pytestmark = pytest.mark.browser

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "[a](javascript:alert(1))",
    "<iframe srcdoc='<script>parent.alert(1)</script>'></iframe>",
    "<a href='javascript:alert(1)'>x</a><svg/onload=alert(1)>",
    "</div></div><style>*{display:none}</style>",
]
RUNNING = {"answers": 1, "hint": "", "tokens": False, "fresh": True}


@pytest.fixture(scope="module")
def browser_page() -> Iterator[WidgetPage]:
    with open_widget_page() as page:
        yield page


@pytest.fixture
def page(browser_page) -> Iterator[WidgetPage]:
    """An empty page; its scripts must not have failed at the end."""
    browser_page.reset()
    yield browser_page
    assert browser_page.errors == []


class Line:
    """A run whose messages reach the page only when and if the test says so."""

    def __init__(self, page: WidgetPage, log: CommLog, num_answers: int, *, tokens: bool) -> None:
        self.page = page
        self.result = made_result(*[""] * num_answers, reason=None)
        self.view = WidgetView(
            num_answers=num_answers,
            stop=lambda: None,
            stop_hint="",
            show_tokens=tokens,
            snapshot=self.result.snapshot,
        )
        self.view.open()
        self.comm = log.comms[-1]
        self.num_gone = 0
        self.load(self.comm.messages[0][1]["state"]["state"])

    def load(self, state: dict[str, Any]) -> None:
        """Make the model and a view of it, as a page does that opens or reloads."""
        self.model = self.page.open("stream", {"state": state})
        self.num_views = 0
        self.add_view()

    def reload(self) -> None:
        """Load it again from what the kernel says; whatever was on the way is lost."""
        self.comm.handle_msg({"content": {"data": {"method": "request_state"}}, "buffers": []})
        self.num_gone = len(self.comm.custom)
        self.load(self.comm.messages[-1][1]["state"]["state"])

    def add_view(self) -> None:
        self.page.add_view(self.model)
        self.num_views += 1

    def deliver(self, *, lose: bool = False) -> None:
        """Let the next message arrive, or be lost."""
        waiting = self.comm.custom[self.num_gone :]
        if waiting:
            self.num_gone += 1
            if not lose:
                self.page.emit(self.model, waiting[0])

    def answer(self) -> None:
        """Let what the page sent reach the kernel. Some time passes."""
        for message in self.page.sent(self.model):
            self.comm.click(message)
        self.page.page.evaluate(
            "window.now = (window.now || 1e6) + 3000; Date.now = () => window.now"
        )

    def deliver_all(self) -> None:
        while self.num_gone < len(self.comm.custom):
            self.deliver()

    def assert_complete(self) -> None:
        """Every view shows exactly the text, once the line works again and something is said on it."""
        self.answer()
        self.page.emit(self.model, {"n": self.comm.custom[-1].get("s", 10**6)})
        self.answer()
        self.deliver_all()
        for view in range(self.num_views):
            assert self.page.texts(self.model, view) == self.result.texts


STEPS = st.lists(
    st.sampled_from(["feed", "feed", "feed", "deliver", "deliver", "lose", "view", "answer", "reload"]), max_size=30
)  # fmt: skip


@pytest.mark.parametrize(("num_answers", "tokens"), [(1, False), (3, False), (1, True)])
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)
@given(steps=STEPS, ends=st.booleans())
def test_whatever_is_lost_every_view_gets_the_whole_text(
    browser_page, num_answers: int, tokens: bool, steps: list[str], ends: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        log = record_comms(patch)
        patch.setattr("IPython.core.display_functions.publish_display_data", lambda *_, **__: None)
        browser_page.reset()
        line = Line(browser_page, log, num_answers, tokens=tokens)
        for number, step in enumerate(steps):
            if step == "feed":
                piece = f"<{number}>\n é😀"
                new = (
                    token_delta([position(piece, 0.5), position(" x", 0.9)])
                    if tokens
                    else delta(
                        *[f"{piece}{i}" if i != number % 4 else "" for i in range(num_answers)]
                    )
                )
                line.result.merge(new)
                line.view.update(new, f"{number} steps")
            elif step in ("deliver", "lose"):
                line.deliver(lose=step == "lose")
            else:
                {"view": line.add_view, "answer": line.answer, "reload": line.reload}[step]()
        if ends:
            line.view.finish(line.result)
        if line.comm.custom:
            line.assert_complete()
        assert browser_page.errors == []


def test_c19_what_a_model_writes_is_text(page) -> None:
    model = page.open("stream", {"state": RUNNING})
    page.add_view(model)
    for number, text in enumerate("".join(HOSTILE), start=1):
        page.emit(model, {"s": number, "d": text})
    assert page.texts(model) == ["".join(HOSTILE)]
    page.emit(model, {"s": 10**6, "full": HOSTILE[:1], "c": HOSTILE[0], "end": HOSTILE[1]})
    assert page.texts(model) == HOSTILE[:1]
    found = page.page.evaluate(
        "[...document.body.querySelectorAll('*')].map((node) => node.tagName)"
    )
    assert set(found) == {"DIV", "SPAN", "BUTTON"}
    assert page.page.evaluate("alerts") == []


def test_c19_so_are_tokens_and_their_alternatives(page) -> None:
    model = page.open("stream", {"state": RUNNING | {"tokens": True}})
    page.add_view(model)
    others = [[text, 0.1] for text in HOSTILE]
    page.emit(model, {"s": 1, "d": [[text, 0.5, others] for text in HOSTILE]})
    page.page.hover(".ks-token >> nth=0")
    assert page.page.locator(".ks-popover").is_visible()
    assert HOSTILE[1] in page.page.locator(".ks-popover").text_content()
    found = page.page.evaluate(
        "[...document.body.querySelectorAll('*')].map((node) => node.tagName)"
    )
    assert set(found) == {"DIV", "SPAN", "BUTTON"}
    assert page.page.evaluate("alerts") == []


def test_stop_changes_its_label_at_once_and_is_sent_once(page) -> None:
    model = page.open("stream", {"state": RUNNING})
    page.add_view(model)
    page.add_view(model)
    buttons = page.page.locator(".ks-stop")
    buttons.first.focus()
    page.page.keyboard.press("Enter")
    assert page.sent(model)[0] == {"kind": "stop"}
    assert buttons.all_text_contents() == ["stopping…", "stopping…"]
    page.emit(model, {"stopping": True})
    page.sent(model)
    page.page.keyboard.press("Enter")
    assert page.sent(model) == []
    page.emit(model, {"s": 1, "end": "12 tokens · abort"})
    assert not buttons.first.is_visible()
    assert page.page.locator(".ks-counters").first.text_content() == "12 tokens · abort"


def test_stop_is_sent_again_until_the_kernel_has_heard_it(page) -> None:
    model = page.open("stream", {"state": RUNNING})
    page.add_view(model)
    page.page.click(".ks-stop")
    page.page.wait_for_function("(m) => models[m].sent.length >= 2", arg=model)
    page.emit(model, {"stopping": True})
    page.sent(model)
    page.page.wait_for_timeout(1200)
    assert page.sent(model) == []


def test_another_page_that_stopped_it_shows_here_too(page) -> None:
    model = page.open("stream", {"state": RUNNING})
    page.add_view(model)
    page.emit(model, {"stopping": True})
    assert page.page.locator(".ks-stop").text_content() == "stopping…"


def test_c9_a_button_that_may_not_work_says_so_until_the_kernel_answers(page) -> None:
    model = page.open("stream", {"state": RUNNING | {"hint": "press ■"}})
    page.add_view(model)
    button = page.page.locator(".ks-stop")
    assert button.text_content() == "press ■"
    assert button.is_disabled()
    assert page.sent(model) == [{"kind": "sync"}]
    page.emit(model, {"s": 1, "d": "text"})
    assert button.is_disabled()
    page.emit(model, {"s": 1, "full": ["text"], "c": ""})
    assert button.is_enabled()
    assert button.text_content() == "Stop"
    assert page.texts(model) == ["text"]


def test_a_new_page_asks_for_nothing(page) -> None:
    model = page.open("stream", {"state": RUNNING})
    page.add_view(model)
    page.emit(model, {"s": 1, "d": "a"}, {"s": 2, "d": "b"}, {"n": 2, "c": "2 tokens"})
    assert page.sent(model) == []


def test_a_lost_message_is_asked_for_once(page) -> None:
    model = page.open("stream", {"state": RUNNING})
    page.add_view(model)
    page.emit(model, *({"s": number, "d": "x"} for number in range(2, 9)))
    assert page.sent(model) == [{"kind": "sync"}]
    page.emit(model, {"s": 5, "full": ["abcde"], "c": ""})
    assert page.texts(model) == ["abcdexxx"]


def test_a_closed_widget_says_that_it_is_not_connected(page) -> None:
    model = page.open("stream", {"state": None})
    page.add_view(model)
    assert page.page.locator(".ks-counters").text_content() == "not connected"
    assert not page.page.locator(".ks-stop").is_visible()


def test_c10_a_page_that_was_reloaded_while_it_ran_shows_the_end(page) -> None:
    model = page.open_source(ended_script(), {"state": RUNNING})
    page.add_view(model)
    shown = page.page.locator("pre")
    assert shown.text_content() == "not connected"
    assert page.sent(model) == [{"kind": "sync"}]
    page.emit(model, {"s": 3, "full": [HOSTILE[0]], "c": "", "end": "9 tokens"})
    assert shown.text_content() == f"{HOSTILE[0]}\n[9 tokens]"
    page.emit(
        model, {"s": 3, "full": [[["a", 1, []], ["b", 1, []]], "c"], "c": "", "end": "9 tokens"}
    )
    assert shown.text_content() == "[0]\nab\n\n[1]\nc\n[9 tokens]"
    assert page.page.evaluate("alerts") == []


def test_c6_a_long_text_stays_in_its_box_and_follows_the_end_unless_scrolled_away(page) -> None:
    model = page.open("stream", {"state": RUNNING})
    page.add_view(model)
    lines = [f"line {number} {'word ' * (number % 20)}\n" for number in range(2000)]
    page.emit(model, *({"s": number, "d": text} for number, text in enumerate(lines, start=1)))
    text = page.page.locator(".ks-text")
    assert text.evaluate("(box) => box.clientHeight") < 450
    at_end = "(box) => box.scrollHeight - box.scrollTop - box.clientHeight < 2"
    assert text.evaluate(at_end)
    text.evaluate("(box) => { box.scrollTop = 100; box.dispatchEvent(new Event('scroll')); }")
    page.emit(model, {"s": 2001, "d": "more\n"})
    assert text.evaluate("(box) => box.scrollTop") == 100
    text.evaluate("(box) => { box.scrollTop = 1e9; box.dispatchEvent(new Event('scroll')); }")
    page.emit(model, {"s": 2002, "d": "more\n" * 40})
    assert text.evaluate(at_end)
    assert page.texts(model) == ["".join(lines) + "more\n" * 41]
    # What is cut into blocks looks as if it were not.
    height = text.evaluate("(box) => box.scrollHeight")
    text.evaluate("(box) => { box.textContent = box.textContent; }")
    assert text.evaluate("(box) => box.scrollHeight") == height


def test_c6_a_flush_at_the_end_of_a_long_text_blocks_the_page_for_a_moment_only(page) -> None:
    model = page.open("stream", {"state": RUNNING})
    page.add_view(model)
    page.emit(model, {"s": 1, "d": "some words in a line\n" * 20_000})
    slowest = page.page.evaluate(
        """(number) => Math.max(...Array.from({ length: 20 }, (_, i) => {
          const began = performance.now();
          models[number].emit({ s: i + 2, d: "and more words ", c: `${i} tokens` });
          document.body.getBoundingClientRect();
          return performance.now() - began;
        }))""",
        model,
    )
    assert slowest < 200


def test_the_live_region_is_polite_and_reachable(page) -> None:
    model = page.open("stream", {"state": RUNNING | {"answers": 2}})
    page.add_view(model)
    texts = page.page.locator(".ks-text")
    assert [texts.nth(i).get_attribute("aria-live") for i in range(2)] == ["polite", "polite"]
    for wanted in ("ks-text", "ks-text", "ks-stop"):
        page.page.keyboard.press("Tab")
        assert page.page.evaluate("document.activeElement.className") == wanted


def test_answers_stand_side_by_side_where_there_is_room(page) -> None:
    model = page.open("stream", {"state": RUNNING | {"answers": 3}})
    page.add_view(model)
    page.emit(model, {"s": 1, "a": [[0, "one"], [1, "two"], [2, "three"]]})
    tops = (
        "[...document.querySelectorAll('.ks-pane')].map((pane) => pane.getBoundingClientRect().top)"
    )
    assert len(set(page.page.evaluate(tops))) == 1
    page.page.evaluate("document.body.style.width = '300px'")
    assert len(set(page.page.evaluate(tops))) == 3


def test_tokens_are_reached_with_arrow_keys(page) -> None:
    model = page.open("stream", {"state": RUNNING | {"tokens": True}})
    page.add_view(model)
    page.emit(
        model,
        {"s": 1, "d": [["The", 0.9, [["The", 0.9], ["A", 0.05]]], [" cat", 0.2, [[" dog", 0.4]]]]},
    )
    page.page.keyboard.press("Tab")
    page.page.keyboard.press("Tab")
    popover = page.page.locator(".ks-popover")
    assert popover.locator(".ks-chosen").text_content().endswith("The")
    page.page.keyboard.press("ArrowRight")
    assert popover.locator(".ks-row").all_text_contents() == ["20.0 %·cat", "40.0 %·dog"]
    described = page.page.evaluate("document.activeElement.getAttribute('aria-describedby')")
    assert described == popover.get_attribute("id")
    page.page.keyboard.press("Escape")
    assert not popover.is_visible()


def test_the_less_probable_a_token_the_stronger_its_shade(page) -> None:
    model = page.open("stream", {"state": RUNNING | {"tokens": True}})
    page.add_view(model)
    page.emit(model, {"s": 1, "d": [[f" {p}", p, []] for p in (1, 0.7, 0.3, 0.01)]})
    colours = page.page.locator(".ks-token").evaluate_all(
        "(all) => all.map((one) => one.style.backgroundColor)"
    )
    assert colours == [
        "",
        "rgba(230, 120, 0, 0.18)",
        "rgba(230, 120, 0, 0.42)",
        "rgba(230, 120, 0, 0.59)",
    ]
