"""The explorer of a finished answer: kernel side, and its script in a browser."""

from __future__ import annotations

import pytest

from kernelserve import InvalidRequestError
from kernelserve_widgets.views import token_explorer
from kernelserve_widgets.views.token_explorer import TokenExplorer
from tests.helpers.answers import made_result, position, token_delta
from tests.helpers.widget_page import open_widget_page


def explored_result():
    result = made_result("")
    result.merge(
        token_delta([position("The", 0.5, A=0.4), position(" <b>", 0.25, **{" dog": 0.5})])
    )
    return result


@pytest.fixture
def in_notebook(monkeypatch):
    monkeypatch.setattr(token_explorer, "choose_ui", lambda _: "widget")
    monkeypatch.setattr(token_explorer, "cell_id", lambda _: "cell-1")


def test_an_answer_without_logprobs_is_refused_with_the_remedy() -> None:
    with pytest.raises(InvalidRequestError, match="run it again with --tokens"):
        TokenExplorer(made_result("text"))


def test_without_widgets_it_is_the_static_token_view(displays, comms) -> None:
    TokenExplorer(explored_result()).show()
    assert list(displays[0]["data"]) == ["text/html"]
    assert comms.comms == []


def test_tokens_are_sent_when_a_view_asks_and_are_no_state(displays, comms, in_notebook) -> None:
    TokenExplorer(explored_result(), lambda index, token_id: f"{index}:{token_id}").show()
    [comm] = comms.comms
    state = comm.messages[0][1]["state"]
    assert (state["cell_id"], state["can_continue"]) == ("cell-1", True)
    comm.click({"kind": "sync"})
    assert comm.custom[-1] == {
        "answers": [
            [
                ["The", 0.5, [["The", 0.5, 0], ["A", 0.4, 1]], 0, 0],
                [" <b>", 0.25, [[" dog", 0.5, 1], [" <b>", 0.25, 0]], 0, 1],
            ]
        ]
    }
    comm.click({"kind": "continue", "index": 1, "token": 7})
    assert comm.custom[-1] == {"source": "1:7"}


def test_what_the_continuation_raises_is_said_in_the_widget(displays, comms, in_notebook) -> None:
    def refuse(index: int, token_id: int) -> str:
        raise InvalidRequestError("forgotten: run its cell again")

    TokenExplorer(explored_result(), refuse).show()
    comms.comms[0].click({"kind": "continue", "index": 1, "token": 7})
    assert comms.comms[0].custom[-1] == {"problem": "forgotten: run its cell again"}


def test_c4_older_explorers_become_static(displays, comms, in_notebook) -> None:
    for _ in range(10):
        TokenExplorer(explored_result()).show()
    assert comms.num_open == 4
    static = [shown for shown in displays if shown["update"]]
    assert len(static) == 6
    assert all(list(shown["data"]) == ["text/html"] for shown in static)
    assert [shown["id"] for shown in static] == [
        shown["id"] for shown in displays if not shown["update"]
    ][:6]


TOKENS = [
    ["The", 0.5, [["The", 0.5, 10], ["A", 0.4, 11]], 10, 0],
    [" <b>", 0.25, [[" dog", 0.5, 12], [" <b>", 0.25, 13]], 13, 1],
    " rest",
]
STATE = {"cell_id": "c2", "can_continue": True}
NOTEBOOK = """
window.cells = ["c1", "c2", "c3"].map((id) => ({ id, getId: () => id }));
window.manager = { context: { model: { sharedModel: {
  cells: window.cells,
  insertCell: (index, cell) => window.cells.splice(index, 0, cell),
} } } };
"""


@pytest.fixture(scope="module")
def browser_page():
    with open_widget_page() as page:
        yield page


@pytest.fixture
def page(browser_page):
    browser_page.reset()
    yield browser_page
    assert browser_page.errors == []
    assert browser_page.page.evaluate("alerts") == []


@pytest.mark.browser
def test_a_click_on_an_alternative_puts_a_cell_below(page) -> None:
    page.page.evaluate(NOTEBOOK)
    model = page.open("tokens", STATE, "manager")
    page.add_view(model)
    page.add_view(model)
    page.emit(model, {"answers": [TOKENS]})
    assert page.texts(model) == ["The <b> rest"]
    page.page.click(".ks-token >> nth=1")
    chosen = page.page.locator(".ks-chosen").first
    assert chosen.text_content() == "25.0 %·<b>"
    page.page.click("button.ks-row >> nth=0")
    assert page.sent(model) == [
        {"kind": "sync"},
        {"kind": "sync"},
        {"kind": "continue", "index": 1, "token": 12},
    ]
    page.emit(model, {"source": "%%generate\nThe dog"})
    cells = page.page.evaluate("cells.map((cell) => cell.id || cell.source)")
    assert cells == ["c1", "c2", "%%generate\nThe dog", "c3"]  # once, though there are two views


@pytest.mark.browser
def test_where_no_cell_can_be_inserted_the_source_is_shown_to_copy(page) -> None:
    model = page.open("tokens", STATE)
    page.add_view(model)
    page.emit(model, {"answers": [TOKENS]})
    page.page.click(".ks-token >> nth=0")
    page.page.keyboard.press("Tab")
    page.page.focus(".ks-token >> nth=0")
    page.page.keyboard.press("Enter")  # to the first alternative
    page.page.keyboard.press("Enter")
    assert page.sent(model)[-1] == {"kind": "continue", "index": 0, "token": 11}
    page.emit(model, {"source": "%%generate\n<b>A"})
    assert page.page.locator(".ks-source pre").text_content() == "%%generate\n<b>A"
    assert page.page.evaluate("document.activeElement.textContent") == "Copy"
    page.page.keyboard.press("Enter")
    page.page.wait_for_function("/Copied|Selected/.test(document.activeElement.textContent)")


@pytest.mark.browser
def test_without_a_continuation_there_is_nothing_to_click(page) -> None:
    model = page.open("tokens", STATE | {"can_continue": False})
    page.add_view(model)
    page.emit(model, {"answers": [TOKENS, TOKENS]})
    page.page.hover(".ks-token >> nth=0")
    assert page.page.locator(".ks-popover .ks-row").count() == 2
    assert page.page.locator(".ks-popover button").count() == 0


@pytest.mark.browser
def test_a_problem_is_said(page) -> None:
    model = page.open("tokens", STATE)
    page.add_view(model)
    page.emit(model, {"answers": [TOKENS]}, {"problem": "<b>no</b>"})
    assert page.page.locator("[role=status]").text_content() == "<b>no</b>"
