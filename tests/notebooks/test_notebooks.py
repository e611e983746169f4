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


def one(shown: list[str], part: str) -> str:
    """Return the outputs of the one cell that shows `part`."""
    [found] = [cell for cell in shown if part in cell]
    return found


def check_quick_start(shown: list[str]) -> None:
    text = "\n".join(shown)
    assert text.count("Paris") >= 3
    assert "('stop'," in text
    assert "Oslo" in one(shown, "chat 'geography'")
    _, second = one(shown, "of them from the cache").splitlines()
    assert int(second.split(", ")[1].split()[0]) > 100, second
    assert "0 running, 0 waiting" in one(shown, "KV blocks: 0 used")
    assert "the prompt" in one(shown, "InvalidRequestError"), "the mistake is named"
    assert any("8192" in cell or "8,192" in cell for cell in shown), "the limit is named"
    assert one(shown, "Throughput")
    assert one(shown, "Timeline(")


def check_streaming(shown: list[str]) -> None:
    assert "abort: " in one(shown, "tokens were kept")
    assert "abort" in one(shown, "(all its clients together)")
    assert one(shown, "[2]")
    assert "```" in one(shown, "fibonacci(n - 1)")
    assert one(shown, "chat 'tour'").count("user:") == 2
    assert "did you mean --temperature?" in one(shown, "--temprature")


def check_scheduler(shown: list[str]) -> None:
    chunks = one(shown, "of 331 prompt tokens; reading decoded").splitlines()
    assert len(chunks) >= 5
    assert "was preempted" in one(shown, " preemptions\n")
    assert any(cell.strip() == "True" for cell in shown), "a preempted answer equals the solo run"
    assert " 192 of " in one(shown, "Who checks it?")
    assert one(shown, "192 from the cache")
    assert one(shown, "pair1 waits: the only seat is taken")
    assert " rows" in one(shown, " bytes, ")


def check_sampling(shown: list[str]) -> None:
    assert "' Paris' 9" in one(shown, "' capital' 9")
    assert "--continue-from r1:4:" in one(shown, "instead of ' is'")
    assert len(one(shown, "  0: ").splitlines()) == 4
    assert "top_k=5" in one(shown, "min_p=0.1")
    plain, odd = one(shown, "a token; least expected").splitlines()
    assert float(plain.split()[0]) < float(odd.split()[0])
    assert "' fridge'" in odd


def check_pictures(shown: list[str]) -> None:
    text = "\n".join(shown)
    assert "num_image_tokens=25" in one(shown, "the encoder took")
    assert "blue" in text
    assert "circle" in text
    stars = one(shown, "The star is red").splitlines()
    assert len(stars) == 6
    assert "encoded now: 0" in one(shown, "| found:")
    assert "encoder" in one(shown, "KV blocks: 0 used")
    assert "no known format" in one(shown, "InvalidRequestError")


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "01_quick_start.ipynb": check_quick_start,
    "02_streaming.ipynb": check_streaming,
    "03_watching_the_scheduler.ipynb": check_scheduler,
    "04_sampling_and_logprobs.ipynb": check_sampling,
    "05_pictures.ipynb": check_pictures,
}


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
    assert "kernelserve: smollm2-135m-" in stream.getvalue()


def test_a_failing_cell_is_shown_and_fails(tmp_path: Path) -> None:
    path = tmp_path / "broken.ipynb"
    cell = nbformat.v4.new_code_cell("print('before')\n1 / 0")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    stream = io.StringIO()
    with pytest.raises(Exception, match="ZeroDivisionError"):
        NotebookRunner(path, stream=stream).execute()
    assert "before" in stream.getvalue()
    assert "ZeroDivisionError" in stream.getvalue()
