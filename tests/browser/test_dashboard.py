"""The dashboard under load: it can be seen, and neither it nor sixteen streams make the page slow."""

from __future__ import annotations

import pytest

from tests.helpers.answer_cell import AnswerCell
from tests.helpers.main_thread import MainThread
from tests.helpers.tokenizers import fake_model_that_speaks

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.notebook]

STREAMS = 16
TOKENS = 300
# How many colours the picture in an element has.
COUNT_COLOURS = """async (image) => {
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = image.naturalWidth;
  canvas.height = image.naturalHeight;
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return new Set(pixels).size;
}"""


@pytest.fixture
def fast_model(tmp_path):
    """A model that says some 100 pieces a second to each of its readers."""
    return fake_model_that_speaks(tmp_path, step_seconds=0.01)


def test_sixteen_streams_and_a_dashboard_leave_the_page_quick(lab, open_served, fast_model):
    ask = f"%%generate --max-tokens {TOKENS} -b;\nTell me."
    open_served("%dashboard", *[ask] * STREAMS, "%dashboard close", model=fast_model)
    lab.run(1)
    lab.traffic.clear()
    with MainThread(lab.page) as main_thread:
        for index in range(2, STREAMS + 2):
            lab.run_cell(index)
        AnswerCell(lab, STREAMS + 1).wait_for_more()
        picture = lab.output(1).locator("img").first
        assert picture.evaluate(COUNT_COLOURS) > 8
        lab.screenshot("dashboard", lab.output(1))
        for index in range(2, STREAMS + 2):
            lab.output(index).locator("pre").wait_for()
    assert main_thread.longest_task < 0.2
    messages, size = lab.traffic.rates()
    assert messages < 60
    assert size < 300_000
    lab.run(STREAMS + 2)
    assert lab.output(1).locator("img").first.evaluate(COUNT_COLOURS) > 8
    lab.screenshot("dashboard-closed", lab.output(1))
