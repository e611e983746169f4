"""What the scripts put into a notebook that is saved while widgets are shown, and what they leave alone."""

from __future__ import annotations

from typing import Any

import ipywidgets
import pytest

from kernelserve_widgets.views.keeper import Keeper
from kernelserve_widgets.views.token_widget import TokenWidget
from tests.helpers.widget_page import WidgetPage, open_widget_page

STATE = "application/vnd.jupyter.widget-state+json"
HOSTILE = "<img src=x onerror=alert(1)>"
OTHER = {"model_module": "x", "model_name": "XModel", "state": {"value": "theirs"}}
STALE = {"model_module": "x", "model_name": "XModel", "state": {"value": '<div class="ks-saved">'}}

# A notebook as JupyterLab gives it to widgets; `shown` are the models that its outputs show.
NOTEBOOK = """
window.shown = [];
window.metadata = {};
window.writes = 0;
window.listeners = new Set();
window.save = (what = "started") => listeners.forEach((listener) => listener(null, what));
const view = (id) => ({ data: { "application/vnd.jupyter.widget-view+json": { model_id: id } } });
const notebook = {
  get cells() {
    const outputs = { length: shown.length, get: (i) => view(shown[i]) };
    return [{ outputs }, {}, { outputs: { length: 1, get: () => ({ data: { "text/plain": "" } }) } }];
  },
  getMetadata: (name) => metadata[name],
  setMetadata: (name, value) => { writes += 1; metadata[name] = value; },
  deleteMetadata: (name) => { writes += 1; delete metadata[name]; },
};
const signal = { connect: (one) => listeners.add(one), disconnect: (one) => listeners.delete(one) };
window.known = {};
window.manager = {
  context: { model: notebook, saveState: signal },
  has_model: (id) => id in known,
  get_model: async (id) => known[id],
};
const made = (model_id, traits) => ({ model_id, get: (name) => traits[name] });
window.addTree = (id, hostile) => {
  const layout = made(`${id}-layout`, {});
  const png = new DataView(new Uint8Array([0, 1, 2]).buffer, 1);
  const row = [
    made(`${id}-number`, { _model_name: "IntTextModel", description: hostile, value: 7, layout }),
    made(`${id}-choice`, { description: "", _options_labels: ["one", "two"], index: 1, value: 200 }),
    made(`${id}-button`, { _model_name: "ButtonModel", description: "press" }),
  ];
  known[id] = made(id, { children: [
    made(`${id}-row`, { _model_name: "HBoxModel", children: row }),
    made(`${id}-words`, { _model_name: "HTMLModel", value: "<b>words</b>" }),
    made(`${id}-picture`, { _model_name: "ImageModel", value: png, format: "png", width: "9", height: "4" }),
  ] });
};
"""


@pytest.fixture(scope="module")
def browser_page():
    with open_widget_page() as page:
        yield page


@pytest.fixture
def page(browser_page):
    """A page with a notebook; no script failed, and nothing a model wrote ran."""
    browser_page.reset()
    browser_page.page.evaluate(f"() => {{ {NOTEBOOK} }}")
    yield browser_page
    assert browser_page.errors == []
    assert browser_page.page.evaluate("alerts") == []


def keep_tree(page: WidgetPage, tree: str = "tree", hostile: str = "seats") -> int:
    """Make a tree of widgets that is shown, and what keeps it; returns the keeper's number."""
    page.page.evaluate(
        "([id, hostile]) => { addTree(id, hostile); shown.push(id); }", [tree, hostile]
    )
    keeper = page.open("keeper", {"view_id": tree}, "manager")
    page.page.evaluate("new Promise((done) => setTimeout(done))")
    return keeper


def saved(page: WidgetPage, **more: Any) -> dict[str, Any]:
    """Save, and return the states in the notebook. `more` are variables of the page to set before."""
    page.page.evaluate("(more) => Object.assign(window, more)", more)
    page.page.evaluate("save()")
    states: dict[str, Any] = page.page.evaluate(
        f"(metadata.widgets ?? {{}})['{STATE}']?.state ?? {{}}"
    )
    return states


def holding(**states: Any) -> dict[str, Any]:
    """Metadata of a notebook with these states of widgets."""
    return {"widgets": {STATE: {"version_major": 2, "version_minor": 0, "state": states}}}


def text_of(page: WidgetPage, entry: dict[str, Any]) -> str:
    """Return what a reader sees of an entry, after the page has drawn it."""
    script = "(html) => { document.body.innerHTML = html; return document.body.innerText; }"
    text: str = page.page.evaluate(script, entry["state"]["value"])
    return text


@pytest.mark.browser
def test_a_tree_is_saved_as_one_html_widget_in_its_place(page) -> None:
    keep_tree(page)
    [(name, entry)] = saved(page).items()
    assert (name, entry["model_name"], list(entry["state"])) == ("tree", "HTMLModel", ["value"])
    assert "data:image/png;base64,AQI=" in entry["state"]["value"]
    words = text_of(page, entry).split("\n")
    assert [word.strip() for word in words if word.strip()] == [
        "seats 7",
        "two",
        "words",
        "not connected",
    ]


@pytest.mark.browser
def test_it_is_written_when_a_save_starts_and_only_if_something_changed(page) -> None:
    keep_tree(page)
    page.page.evaluate("save('completed')")
    assert page.page.evaluate("writes") == 0
    saved(page)
    saved(page)
    assert page.page.evaluate("writes") == 1


@pytest.mark.browser
def test_what_others_have_saved_stays_and_what_nothing_shows_goes(page) -> None:
    keep_tree(page)
    states = saved(page, metadata=holding(other=OTHER, gone=STALE))
    assert states.keys() == {"tree", "other"}
    assert states["other"] == OTHER
    assert saved(page, shown=[]) == {"other": OTHER}


@pytest.mark.browser
def test_what_is_shown_since_yesterday_stays(page) -> None:
    keep_tree(page)
    states = saved(page, metadata=holding(old=STALE), shown=["old", "tree"])
    assert states.keys() == {"old", "tree"}


@pytest.mark.browser
def test_c8_what_jupyterlab_saves_of_the_parts_is_dropped(page) -> None:
    keep_tree(page)
    full = {"tree": OTHER, "tree-row": OTHER, "tree-number": OTHER, "tree-number-x": OTHER}
    keeper = OTHER | {"state": {"view_id": "tree", "_esm": "long"}}
    states = saved(page, metadata=holding(**full, **{"tree-layout": OTHER}, keeper=keeper))
    assert states.keys() == {"tree", "tree-number-x"}


@pytest.mark.browser
def test_nothing_is_left_behind_when_all_is_closed_and_replaced(page) -> None:
    keep_tree(page)
    end = "window.end = models.at(-1).definition.initialize({ model: models.at(-1) })"
    page.page.evaluate(f"{end}; new Promise((done) => setTimeout(done))")
    assert saved(page).keys() == {"tree"}
    page.page.evaluate("shown = []; end()")
    page.page.wait_for_function("!('widgets' in metadata)", timeout=5000)
    assert page.page.evaluate("listeners.size") == 1


@pytest.mark.browser
@pytest.mark.parametrize("script", ["stream", "tokens"])
def test_an_open_answer_is_saved_as_text(page, script) -> None:
    options = {"answers": 2, "hint": "", "tokens": False, "fresh": True}
    model = page.open(script, {"state": options, "view_id": "me"}, "manager")
    token = [HOSTILE, 0.5, [[HOSTILE, 0.5], ["other", 0.25]], 10, 0]
    page.emit(
        model, {"s": 1, "full": [[token, " end"], ["b"]], "answers": [[token, " end"], ["b"]]}
    )
    [entry] = saved(page, shown=["me"]).values()
    assert text_of(page, entry) == f"[0]\n{HOSTILE} end\n[1]\nb\nnot connected"
    assert page.page.locator("span").get_attribute("title").endswith("25.0 %  other")


@pytest.mark.browser
def test_an_explorer_without_tokens_yet_adds_nothing(page) -> None:
    page.open("tokens", {"view_id": "me"}, "manager")
    assert saved(page, shown=["me"]) == {}


@pytest.mark.browser
def test_labels_are_text(page) -> None:
    keep_tree(page, hostile=HOSTILE)
    assert HOSTILE in text_of(page, saved(page)["tree"])


@pytest.mark.browser
@pytest.mark.parametrize("manager", ["", "known"])
def test_front_ends_without_a_document_are_left_alone(page, manager) -> None:
    page.open("keeper", {"view_id": "tree"}, manager)
    assert page.page.evaluate("listeners.size") == 0


def test_a_widget_is_kept_under_its_own_id_and_a_tree_under_its_root(comms) -> None:
    explorer = TokenWidget(list, None, cell_id="")
    assert comms.comms[0].messages[0][1]["state"]["view_id"] == explorer.model_id
    assert comms.comms[0].comm_id == explorer.model_id
    tree = ipywidgets.VBox()
    keeper = Keeper(tree)
    state = comms.comms[-1].messages[0][1]["state"]
    assert (state["view_id"], state["_css"]) == (tree.model_id, "")
    assert keeper.model_id not in (tree.model_id, explorer.model_id)
    kept_as = keeper.model_id
    for widget in (explorer, keeper):
        widget.discard()
    assert len(str(comms.saved_state()[kept_as])) < 500
    assert comms.comms[-1].closed
    tree.layout.close()
    tree.close()
