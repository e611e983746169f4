"""The first notebook that a user opens, run in JupyterLab from top to bottom, on the embedded model."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from tests.helpers.answer_cell import AnswerCell

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.notebook]

QUICK_START = Path(__file__).parents[2] / "notebooks" / "01_quick_start.ipynb"


@pytest.mark.timeout(240)
def test_the_quick_start_streams_and_runs_to_its_end(lab, server):
    name = QUICK_START.name
    (server.root / name).write_bytes(QUICK_START.read_bytes())
    cells = json.loads(QUICK_START.read_text())["cells"]
    code = [i for i, cell in enumerate(cells) if cell["cell_type"] == "code"]
    mistakes = [i for i in code if "raises-exception" in cells[i]["metadata"].get("tags", [])]
    first = next(i for i in code if cells[i]["source"][0].startswith("%%generate"))
    lab.open(name)
    answer = AnswerCell(lab, first)
    answer.record()
    lab.run_all()
    lab.wait_idle(120)
    lab.wait_for_text(first, "Paris")
    texts = answer.recorded()
    assert len(texts) > 1, "it streamed"
    assert all(later.startswith(text) for text, later in itertools.pairwise(texts))
    failed = [i for i in code if any(out["output_type"] == "error" for out in lab.cell_outputs(i))]
    assert failed == mistakes
    assert not lab.widget_errors()
    lab.screenshot("quick-start")
