"""The token explorer: look at an alternative, click it, and a cell that continues from there stands below."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.notebook]


def test_a_click_on_an_alternative_makes_a_cell_that_continues(lab, open_served):
    ask = "%%generate --max-tokens 12 --temperature 0 --tokens -o first;\nTell me."
    open_served(ask, "first.explore()", "first.text")
    lab.run(1)
    lab.run(2)
    [text] = [eval(output["data"]["text/plain"]) for output in lab.run(3)]
    tokens = lab.output(2).locator(".ks-token")
    tokens.first.wait_for()
    assert "".join(tokens.all_text_contents()) == text
    before = "".join(tokens.all_text_contents()[:3])
    tokens.nth(3).click()
    alternative = lab.output(2).locator(".ks-popover button.ks-row").first
    expect(alternative).to_be_visible()
    lab.screenshot("tokens")
    other = alternative.locator(".ks-alt").text_content().replace("·", " ")
    alternative.click()
    lab.page.wait_for_function("window.jupyterapp.shell.currentWidget.content.widgets.length === 5")
    line, _, body = lab.cell_source(3).partition("\n")
    assert line.startswith("%%generate")
    assert body == before + other
    shown = lab.run(3)
    assert "error" not in {output["output_type"] for output in shown}
    lab.screenshot("continued")
