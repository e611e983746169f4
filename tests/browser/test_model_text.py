"""What a model writes is text, whatever it looks like: while it streams, when it has ended, and after a reload."""

from __future__ import annotations

import pytest

from tests.helpers.answer_cell import AnswerCell
from tests.helpers.tokenizers import CHAT_TEMPLATE, make_byte_level, save

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.notebook]

# Each is one token, so that they come in any order and are cut at any border.
PIECES = [
    '<img src="x" onerror="window.ran = 1">',
    "<script>window.ran = 1</script>",
    "<iframe srcdoc='<script>parent.ran = 1</script>'>",
    "[a link](javascript:window.ran=1)",
    "![a picture](http://127.0.0.1:9/x.png)",
    "<b onmouseover='window.ran = 1'>bold",
    '"></div></pre>',
    "<style>* { display: none }</style>",
    "\n\n",
    "&lt;i&gt;",
]
LIVE = "img, script, iframe, style, b, a[href^='javascript']"
LINES = ("", "--format markdown", "--format code", "--tokens", "--format markdown -n 2")


@pytest.fixture
def hostile_model(tmp_path):
    """A model that says nothing but PIECES."""
    tokenizer = make_byte_level()
    tokenizer.add_tokens(PIECES)
    save(tokenizer, tmp_path, chat_template=CHAT_TEMPLATE, eos_token="<|im_end|>")
    first = tokenizer.get_vocab_size() - len(PIECES)
    return f"fake:tokenizer={tmp_path},first_token={first},step_seconds=0.02"


def test_markup_of_a_model_is_never_live(lab, open_served, hostile_model):
    cells = [f"%%generate --max-tokens 5000 {line};\nTell me." for line in LINES]
    name = open_served(*cells, "%last", model=hostile_model)
    for index in range(1, len(LINES) + 1):
        answer = AnswerCell(lab, index)
        answer.start()
        lab.wait_for_text(index, PIECES[0])
        assert lab.output(index).locator(LIVE).count() == 0
        answer.stop()
        lab.wait_idle()
    lab.run(len(LINES) + 1)
    expect_only_text(lab)
    lab.screenshot("hostile")
    lab.save()
    lab.reload(name)
    expect_only_text(lab)


def expect_only_text(lab) -> None:
    for index in range(1, len(LINES) + 2):
        lab.cell(index).scroll_into_view_if_needed()
        lab.wait_for_text(index, "onerror")
        assert lab.output(index).locator(LIVE).count() == 0, lab.output(index).inner_html()
    assert lab.page.evaluate("window.ran") is None
