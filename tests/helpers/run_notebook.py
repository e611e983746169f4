"""Runs a notebook in a real kernel and prints what each cell shows, while it shows it.

python -m tests.helpers.run_notebook NOTEBOOK [--timeout SECONDS]
"""

from __future__ import annotations

import argparse
import html
import re
import sys
from pathlib import Path
from typing import Any, TextIO

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

__all__ = ["NotebookRunner", "output_text"]

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_BOX = re.compile(r"</(?:td|th|p|div)>")
_TAG = re.compile(r"<style.*?</style>|<[^>]*>", re.DOTALL)
_SOURCE_LINES = 4
_WIDGET = "application/vnd.jupyter.widget-view+json"


class NotebookRunner(NotebookClient):  # type: ignore[misc]
    """A NotebookClient that tells `stream` about each cell and output when it comes."""

    def __init__(self, path: Path, *, stream: TextIO, timeout: float = 300.0) -> None:
        self._stream = stream
        self._at_line_start = True
        self._changing: list[Any] = []
        super().__init__(
            nbformat.read(path, as_version=4),
            timeout=timeout,
            kernel_name="python3",
            resources={"metadata": {"path": str(path.parent)}},
            on_cell_start=self._show_cell,
            on_cell_executed=self._show_changed,
            # Its warning about unencrypted TCP is of no use to the reader of a demo.
            extra_arguments=["--log-level=ERROR"],
        )

    def output(self, outs: list[Any], msg: Any, display_id: str | None, cell_index: int) -> Any:
        """Keep the output as NotebookClient does, and show it: what may still change, when the cell has ended."""
        shown = super().output(outs, msg, display_id, cell_index)
        if shown is not None:
            # What comes after an output that may still change waits with it.
            if self._changing or display_id is not None or _WIDGET in shown.get("data", {}):
                self._changing.append(shown)
            else:
                self._write(output_text(shown))
        return shown

    def widget_text(self, output: Any) -> str:
        """Return what the texts of a widget, such as those around a bar, say now."""
        model_id = output.data[_WIDGET]["model_id"]
        state = self.widget_state.get(model_id, {})
        children = [child.removeprefix("IPY_MODEL_") for child in state.get("children", [])]
        values = [self.widget_state.get(child, {}).get("value") for child in children]
        return " ".join(_without_tags(value) for value in values if isinstance(value, str))

    def _show_cell(self, cell: Any, cell_index: int) -> None:
        if cell.cell_type != "code":
            self._show_heading(cell.source)
            return
        lines = cell.source.splitlines()
        shown = lines[:_SOURCE_LINES]
        if len(lines) > len(shown):
            shown.append(f"... ({len(lines) - len(shown)} more lines)")
        self._start_line()
        self._write("\n" + "".join(f">>> {line}\n" for line in shown))

    def _show_changed(self, **_: Any) -> None:
        """Show widgets and displays when the cell has ended, as they then are."""
        for output in self._changing:
            self._start_line()
            if _WIDGET in output.get("data", {}):
                self._write(self.widget_text(output) + "\n")
            else:
                self._write(output_text(output))
        self._changing.clear()

    def _show_heading(self, markdown: str) -> None:
        first = markdown.partition("\n")[0]
        if first.startswith("#"):
            self._start_line()
            self._write(f"\n{first.lstrip('# ')}\n")

    def _start_line(self) -> None:
        if not self._at_line_start:
            self._write("\n")

    def _write(self, text: str) -> None:
        if text:
            self._at_line_start = text.endswith("\n")
            self._stream.write(text)
            self._stream.flush()


def output_text(output: Any) -> str:
    """Return the plain text of one output of a cell."""
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return _ANSI.sub("", "\n".join(output.traceback)) + "\n"
    kinds = ("text/plain", "text/markdown", "application/json", "text/html", "image/png")
    found = next((kind for kind in kinds if kind in output.data), None)
    if found == "image/png":
        return "[picture]\n"
    text = str(output.data.get(found, ""))
    return (_without_tags(text) if found == "text/html" else text) + "\n"


def _without_tags(markup: str) -> str:
    """Return the text of HTML; what stands in boxes of its own stays apart."""
    return html.unescape(_TAG.sub("", _BOX.sub("  ", markup))).strip()


def main() -> int:
    """Run the notebook that the command line names; 1 if a cell failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m tests.helpers.run_notebook"
    )
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one cell")
    arguments = parser.parse_args()
    runner = NotebookRunner(arguments.notebook, stream=sys.stdout, timeout=arguments.timeout)
    try:
        runner.execute()
    except CellExecutionError as error:
        message = f"{arguments.notebook}: a cell failed: {error.ename}: {error.evalue}"
        sys.stderr.write(f"\n{message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
