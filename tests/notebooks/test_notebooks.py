"""The tours in notebooks/ run top to bottom in a real kernel and show what they promise."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from tests.helpers.run_notebook import NotebookRunner, output_text

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

pytestmark = pytest.mark.notebook


def check_quick_start(shown: list[str]) -> None:
    text = "\n".join(shown)
    assert text.count("Paris") >= 2
    assert "The capital of Italy is" in text
    assert "('length', 24)" in text
    [cache] = [cell for cell in shown if "from the cache" in cell]
    _, second = cache.splitlines()
    assert int(second.split(", ")[1].split()[0]) > 100, cache
    [stats] = [cell for cell in shown if "0 running, 0 waiting" in cell]
    assert "blocks: 0 used" in stats
    assert any("8192" in cell or "8,192" in cell for cell in shown), "the limit is named"


CHECKS: dict[str, Callable[[list[str]], None]] = {"01_quick_start.ipynb": check_quick_start}


def test_every_notebook_is_checked() -> None:
    assert {path.name for path in NOTEBOOKS.glob("*.ipynb")} == set(CHECKS)


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_is_saved_without_outputs(name: str) -> None:
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not [cell for cell in code if cell.outputs or cell.execution_count is not None]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", sorted(CHECKS))
def test_runs(name: str) -> None:
    stream = io.StringIO()
    runner = NotebookRunner(NOTEBOOKS / name, stream=stream)
    notebook = runner.execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = ["".join(output_text(output) for output in cell.outputs) for cell in code]
    CHECKS[name](shown)
    assert "Paris" in stream.getvalue()


def test_a_failing_cell_is_shown_and_fails(tmp_path: Path) -> None:
    path = tmp_path / "broken.ipynb"
    cell = nbformat.v4.new_code_cell("print('before')\n1 / 0")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    stream = io.StringIO()
    with pytest.raises(Exception, match="ZeroDivisionError"):
        NotebookRunner(path, stream=stream).execute()
    assert "before" in stream.getvalue()
    assert "ZeroDivisionError" in stream.getvalue()
