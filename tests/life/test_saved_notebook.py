"""Notebooks run by tools, saved, exported and read without a kernel: user-needs B1, B6, C7, C8 by their numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.helpers.tokenizers import fake_model_that_speaks

pytestmark = [pytest.mark.notebook, pytest.mark.process]

_WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def serve(tmp_path: Path, runtime_folder: Path) -> str:
    model = fake_model_that_speaks(tmp_path / "tokenizer", step_seconds=0.002)
    return f"%load_ext kernelserve\n%serve {model} --fake-model"


def notebook_of(*cells: str):
    return nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells],
        metadata={
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
        },
    )


def run(notebook, **options):
    NotebookClient(notebook, timeout=60, kernel_name="python3", **options).execute()
    return notebook


def outputs_of(notebook, cell: int) -> list[Any]:
    return list(notebook.cells[cell].outputs)


def test_b1_c7_the_saved_notebook_reads_without_a_kernel(serve: str) -> None:
    from nbconvert import HTMLExporter, MarkdownExporter

    notebook = run(
        notebook_of(
            serve,
            "%dashboard",
            "%%generate -o a --max-tokens 30\nHello",
            "print(repr(a.text))",
            "%%generate -o b -n 2 --max-tokens 10 --format markdown --temperature 1\nHello",
            "%%generate --tokens -o c --max-tokens 10\nHello",
            "%timeline",
            "%dashboard close",
            "%dashboard",
            "%%generate --max-tokens 40\nHello",
        )
    )
    text = eval(outputs_of(notebook, 3)[0]["text"])
    saved = nbformat.writes(notebook)
    shown = [o for o in outputs_of(notebook, 2) if "data" in o]
    assert sum(text in str(o["data"]) for o in shown) == 1
    state = notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    for number, cell in enumerate(notebook.cells):
        for output in cell.outputs:
            data = output.get("data", {})
            # Controls and sliders are widgets whose state is saved, so that they are drawn, and not connected.
            assert _WIDGET not in data or data[_WIDGET]["model_id"] in state, (
                f"cell {number}: {set(data)}"
            )
    assert _WIDGET not in str([set(o.get("data", {})) for o in outputs_of(notebook, 2)])
    # What a dashboard shows last: when it was closed, or else when the last cell had ended.
    for cell, tokens in ((1, "30 tokens"), (8, "40 tokens")):
        [dashboard] = [o["data"] for o in outputs_of(notebook, cell) if "image/png" in o["data"]]
        assert tokens in dashboard["text/plain"]
        assert "0 tok/s" in dashboard["text/plain"]
    assert "40 tokens" not in str(outputs_of(notebook, 1))
    assert "image/png" in str([set(o.get("data", {})) for o in outputs_of(notebook, 6)])
    assert "model not found" not in saved
    html, _ = HTMLExporter().from_notebook_node(notebook)
    assert text[:40].strip() in html
    assert "30 tokens" in html
    markdown, _ = MarkdownExporter().from_notebook_node(notebook)
    assert text[:40].strip() in markdown


def test_b6_a_failing_cell_fails_the_run(serve: str) -> None:
    notebook = notebook_of(serve, "%%generate --temprature 1\nHello", "print('never')")
    with pytest.raises(CellExecutionError, match="did you mean --temperature"):
        run(notebook)
    assert not notebook.cells[2].outputs
    allowed = run(
        notebook_of(serve, "%%generate -o a --logprobs 10000\nHello", "print('goes on')"),
        allow_errors=True,
    )
    [error] = outputs_of(allowed, 1)
    assert error["output_type"] == "error"
    assert error["ename"] == "InvalidRequestError"
    assert len(error["traceback"]) == 1


def test_b6_papermill_exits_with_an_error(serve: str, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.ipynb", tmp_path / "bad.ipynb"
    nbformat.write(notebook_of(serve, "%%generate -o a --max-tokens 5\nHello"), good)
    nbformat.write(notebook_of(serve, "%%generate --nope\nHello"), bad)
    for path, wanted in ((good, 0), (bad, 1)):
        command = [
            sys.executable,
            "-m",
            "papermill",
            str(path),
            str(tmp_path / "out.ipynb"),
            "--no-progress-bar",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == wanted, done.stderr[-2000:]
    assert "there is no option --nope" in done.stderr


def test_c8_a_hundred_runs_leave_little_widget_state(serve: str) -> None:
    cell = "%%generate --max-tokens 3\nHello"

    def saved_state(runs: int) -> int:
        notebook = run(notebook_of(serve, *[cell] * runs))
        return len(json.dumps(notebook.metadata.widgets))

    assert saved_state(104) - saved_state(4) < 50_000
