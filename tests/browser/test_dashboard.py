"""The dashboard under load: it can be seen, and neither it nor sixteen streams make the page slow."""

from __future__ import annotations

import pytest

from tests.helpers.answer_cell import AnswerCell
from tests.helpers.main_thread import MainThread
from tests.helpers.page_picture import count_colours
from tests.helpers.tokenizers import fake_model_that_speaks

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.notebook]

STREAMS = 16
MILLISECONDS = 3000
"""How long messages are counted: the server's own window."""


@pytest.fixture
def fast_model(tmp_path):
    """A model that says some 100 pieces a second to each of its readers."""
    return fake_model_that_speaks(tmp_path, step_seconds=0.01)


def test_sixteen_streams_and_a_dashboard_leave_the_page_quick(lab, open_served, fast_model):
    ask = "%%generate --max-tokens 5000 -b;\nTell me."
    open_served("%dashboard", *[ask] * STREAMS, "%abort all\n%dashboard close", model=fast_model)
    lab.run(1)
    with MainThread(lab.page) as main_thread:
        for index in range(2, STREAMS + 2):
            lab.run_cell(index)
        AnswerCell(lab, STREAMS + 1).wait_for_more()
        lab.traffic.clear()
        lab.page.wait_for_timeout(MILLISECONDS)
        messages, size = lab.traffic.rates()
        assert count_colours(lab.output(1).locator("img").first) > 8
        lab.screenshot("dashboard", lab.output(1))
        lab.run(STREAMS + 2)
        for index in range(2, STREAMS + 2):
            lab.output(index).locator("pre").wait_for()
    assert main_thread.longest_task < 0.2
    assert 5 < messages < 60
    assert size < 300_000
    assert count_colours(lab.output(1).locator(".jp-RenderedImage img").first) > 8
    lab.screenshot("dashboard-closed", lab.output(1))
