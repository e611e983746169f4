"""An answer in JupyterLab: it streams, it stops, it survives reloads and restarts, and the file stays small."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import expect

from tests.helpers.answer_cell import AnswerCell
from tests.helpers.leftovers import wait_until
from tests.helpers.page_picture import true_width
from tests.helpers.tokenizers import fake_model_that_speaks

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.notebook]

STOPPED = "[stopped after"
NOT_CONNECTED = "not connected"
STATE_MIME = "application/vnd.jupyter.widget-state+json"
VIEW_MIME = "application/vnd.jupyter.widget-view+json"


def generate(line: str = "", *, tokens: int = 50) -> str:
    return f"%%generate --max-tokens {tokens} {line}\nTell me."


def test_text_is_seen_while_it_streams_and_stays(lab, open_served, server):
    name = open_served(generate("-o result", tokens=250), "result.text, result.finish_reason")
    answer = AnswerCell(lab, 1)
    first = answer.start()
    second = answer.wait_for_more(first)
    lab.screenshot("streaming")
    assert second.startswith(first)
    lab.wait_idle()
    text, reason = eval(lab.run(2)[0]["data"]["text/plain"])
    assert text.startswith(second.rstrip())
    assert reason == "length"
    lab.wait_for_text(1, text[-20:].strip())
    lab.screenshot("streamed")
    lab.save()
    saved = server.read_notebook(name)["cells"][1]["outputs"]
    assert saved[0]["data"] == {"text/plain": text}


def test_stop_ends_the_cell_at_once_and_keeps_the_text(lab, open_served):
    open_served(generate("-o result", tokens=5000), "result.finish_reason, len(result.text) > 0")
    answer = AnswerCell(lab, 1)
    seen = answer.start()
    answer.stop_button.hover()  # scrolls there first
    began = time.monotonic()
    answer.stop()
    lab.wait_idle(5)
    assert time.monotonic() - began < 1
    lab.wait_for_text(1, STOPPED)
    assert lab.cell_outputs(1)[0]["data"]["text/plain"].startswith(seen)
    lab.screenshot("stopped")
    assert lab.run(2)[0]["data"]["text/plain"] == "('abort', True)"


def test_interrupt_ends_the_cell_and_keeps_the_text(lab, open_served):
    open_served(generate("-o result", tokens=5000), generate(tokens=5))
    AnswerCell(lab, 1).start()
    began = time.monotonic()
    lab.interrupt_kernel()
    lab.wait_idle(5)
    assert time.monotonic() - began < 1
    shown, error, *_ = lab.cell_outputs(1)
    assert STOPPED in shown["data"]["text/plain"]
    assert error["ename"] == "KeyboardInterrupt"
    assert "error" not in {output["output_type"] for output in lab.run(2)}


def test_a_reload_in_the_middle_loses_nothing(lab, open_served):
    cells = ["%last", "%abort all", "result.text"]
    name = open_served(generate("-o result --temperature 0 -b;", tokens=5000), *cells)
    before = AnswerCell(lab, 1).start()
    lab.save()
    lab.reload(name)
    joined = AnswerCell(lab, 1).wait_for_more(before)
    assert joined.startswith(before), "the view of the cell goes on"
    again = AnswerCell(lab, 2).start()
    assert again.startswith(joined), "a fresh view begins with what there was"
    lab.run(3)
    lab.wait_for_text(1, "abort")
    lab.wait_for_text(2, STOPPED)
    lab.screenshot("reloaded")
    [text] = [eval(output["data"]["text/plain"]) for output in lab.run(4)]
    assert text.startswith(again)
    assert lab.cell_outputs(2)[0]["data"]["text/plain"].startswith(text)


def test_after_a_restart_texts_are_readable_and_no_widget_is_missing(lab, open_served):
    open_served(generate("-o result --temperature 0"), "%dashboard", "result")
    lab.run(1)
    shown = text_of_ended(lab, 1)
    lab.run(2)
    lab.run(3)
    lab.restart_kernel()
    lab.screenshot("restarted")
    expect(lab.output(1)).to_have_text(shown, use_inner_text=True)
    assert not lab.widget_errors()
    lab.run(0)
    [text, _] = lab.run(1)
    assert text["data"]["text/plain"].rstrip() in shown


def test_a_notebook_of_yesterday_is_readable(lab, open_served, server):
    cells = [generate("-o result --temperature 0 --tokens"), generate(tokens=5000)]
    shows = ["%dashboard close", "%dashboard", "%dashboard", "%timeline", "result.explore()"]
    name = open_served(*cells, *shows, generate("-b;", tokens=5000))
    lab.run(4)
    lab.run(1)
    text = text_of_ended(lab, 1)
    stopped = AnswerCell(lab, 2)
    stopped.start()
    stopped.stop()
    lab.wait_idle()
    for index in (3, 5, 6, 7):
        lab.run(index)
    streamed = AnswerCell(lab, 8).start()
    expect(lab.output(5).locator(".widget-image")).to_be_visible()

    def all_is_kept() -> bool:
        lab.save()
        return kept_models(saved := server.read_notebook(name)) == shown_models(saved)

    # Its script takes a moment.
    wait_until(all_is_kept, "what has just been shown is not kept", timeout=20)
    reopen_without_kernel(lab, server, name)
    lab.screenshot("yesterday")
    lab.cell(1).scroll_into_view_if_needed()
    expect(lab.output(1)).to_have_text(text, use_inner_text=True)
    lab.wait_for_text(2, STOPPED)
    assert true_width(lab.output(4).locator("img").first) > 500
    assert true_width(lab.output(5).locator("img").first) > 500
    for index, said in ((5, "Token budget"), (6, "step"), (7, text[:10]), (8, streamed)):
        lab.cell(index).scroll_into_view_if_needed()
        lab.wait_for_text(index, said)
        lab.wait_for_text(index, NOT_CONNECTED)
    for index in range(4, 9):
        lab.screenshot(f"yesterday-{index}", lab.cell(index))
    assert not lab.widget_errors()
    assert not lab.errors
    lab.run(0)
    lab.run(5)  # shows new controls; the widgets of the other cells are still of yesterday

    def all_is_kept_and_saved() -> bool:
        return all_is_kept() and not lab.is_unsaved()

    wait_until(all_is_kept_and_saved, "what was kept is lost, or a save changes it", timeout=20)
    assert len(shown_models(server.read_notebook(name))) == 4, "the dashboard is at rest"


def test_a_hundred_runs_with_widget_state_keep_the_file_small(lab, open_served, server, tmp_path):
    name = open_served(generate(tokens=3), "%dashboard", model=fake_model_that_speaks(tmp_path))
    lab.toggle_widget_state()
    lab.run(2)
    lab.run_often(1, 2)
    lab.save()
    small = (server.root / name).stat().st_size
    # A page that lags behind a kernel this fast draws outputs whose widgets are closed, and gone when they are drawn.
    lab.forgive("widget model not found")
    lab.run_often(1, 100)

    def all_is_kept() -> bool:
        lab.save()
        return kept_models(saved := server.read_notebook(name)) > shown_models(saved)

    wait_until(all_is_kept, "what is shown is not kept", timeout=20)
    assert not lab.widget_errors()
    states = server.read_notebook(name)["metadata"]["widgets"][STATE_MIME]["state"]
    assert "IntTextModel" not in {state["model_name"] for state in states.values()}
    assert (server.root / name).stat().st_size - small < 50_000
    lab.toggle_widget_state()


def reopen_without_kernel(lab, server, name: str) -> None:
    """Save, end the kernel, and open the notebook in a JupyterLab that knows nothing of it."""
    lab.save()
    lab.close_all()
    server.shutdown_kernels()
    lab.load()
    lab.open(name)


def text_of_ended(lab, index: int) -> str:
    """Return what a reader sees below a cell when static text has taken the place of its live answer."""
    static = lab.output(index).locator(".jp-RenderedText, .jp-RenderedHTMLCommon")
    static.first.wait_for(state="attached")
    return str(lab.cell_text(index))


def shown_models(notebook) -> set[str]:
    """Return the ids of the widgets that the outputs of a saved notebook show."""
    outputs = [output for cell in notebook["cells"] for output in cell["outputs"]]
    views = [output["data"].get(VIEW_MIME) for output in outputs if "data" in output]
    return {view["model_id"] for view in views if view}


def kept_models(notebook) -> set[str]:
    """Return the ids of the widgets that a page without a kernel finds in a saved notebook."""
    return set(notebook["metadata"]["widgets"][STATE_MIME]["state"])
