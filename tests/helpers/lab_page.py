"""A page of JupyterLab in a real browser, driven the way a person drives it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Locator, expect

from tests.helpers.kernel_traffic import KernelTraffic
from tests.helpers.lab_server import LabServer

__all__ = ["LabPage"]

LOAD_SECONDS = 60.0
_WIDGET_COMPLAINTS = (
    "model not found",
    "Error displaying widget",
    "Error creating widget",
    "Loading widget",
)
# The notebook in front, and its cells. Every script below begins with these.
_NOTEBOOK = """
const panel = window.jupyterapp?.shell.currentWidget;
const notebook = panel?.content;
const cells = notebook?.widgets ?? [];
"""
_KERNEL_IS_IDLE = """
return panel?.sessionContext?.session?.kernel?.status === "idle" && !window.ksRuns;
"""
_START = """
window.ksRuns = (window.ksRuns ?? 0) + 1;
window.jupyterapp.commands.execute("%s").finally(() => { window.ksRuns -= 1; });
"""
_SELECT = "notebook.activeCellIndex = argument;"


class LabPage:
    """One browser page with JupyterLab; its methods mean the notebook that is in front.

    Waits end in playwright's TimeoutError or an AssertionError that says what was missing. Times are in seconds.
    """

    def __init__(self, context: BrowserContext, server: LabServer, artifacts: Path) -> None:
        self._server = server
        self._artifacts = artifacts
        self.page = context.new_page()
        self.page.on("pageerror", lambda error: self._note_error(str(error)))
        self.page.on("console", self._note_console)
        self.errors: list[str] = []
        """Uncaught exceptions and console errors of the page so far, without those that are forgiven."""
        self._forgiven: set[str] = set()
        self.traffic = KernelTraffic(self.page)
        self.is_fresh = False
        """False when JupyterLab may still be opening tabs of its own accord, as after a reload."""

    def load(self) -> None:
        """Load JupyterLab anew, with nothing open and no sidebar."""
        self.page.goto(f"{self._server.url}/lab?token={self._server.token}&reset")
        self._wait("return window.jupyterapp?.shell.isAttached;", timeout=LOAD_SECONDS)
        self._run(
            "return window.jupyterapp.restored.then(() => window.jupyterapp.shell.collapseLeft());"
        )
        self.is_fresh = True

    def open(self, name: str) -> None:
        """Open a notebook and wait for its kernel."""
        self._command("docmanager:open", {"path": name})
        self._wait_for_notebook(name)

    def close_all(self) -> None:
        """Close all tabs without saving; kernels go on."""
        self._run("for (const w of [...window.jupyterapp.shell.widgets('main')]) w.dispose();")

    def reload(self, name: str) -> None:
        """Press the browser's Reload, and wait until the notebook is shown again, whatever its kernel does."""
        self.is_fresh = False
        known = self.errors.copy()
        self.page.reload()
        self.errors[:] = known  # the page that went away complains about its requests
        self._wait_for_notebook(name, kernel=False)

    def forget_errors(self) -> None:
        """Begin anew to collect errors, and forgive none."""
        self.errors.clear()
        self._forgiven.clear()

    def forgive(self, text: str) -> None:
        """From now on take no errors that contain `text`, which may come at any time."""
        self._forgiven.add(text)

    # -- cells

    def cell(self, index: int) -> Locator:
        """Return where the page shows a cell."""
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell").nth(index)

    def output(self, index: int) -> Locator:
        """Return where the page shows all outputs of a cell."""
        return self.cell(index).locator(".jp-Cell-outputArea")

    def run_cell(self, index: int) -> None:
        """Start a cell and return at once."""
        self._run(_SELECT + _START % "notebook:run-cell", index)

    def run_all(self) -> None:
        """Start all cells, one after the other, and return at once."""
        self._run(_START % "notebook:run-all-cells")

    def wait_idle(self, timeout: float = 30) -> None:
        """Wait until all cells that were started have ended, and a restart too."""
        self._wait(_KERNEL_IS_IDLE, timeout=timeout)

    def run(self, index: int, timeout: float = 30) -> list[dict[str, Any]]:
        """Run a cell to its end and return its outputs."""
        self.run_cell(index)
        self.wait_idle(timeout)
        return self.cell_outputs(index)

    def run_often(self, index: int, times: int) -> None:
        """Run a cell to its end again and again."""
        script = """return (async () => {
            for (let i = 0; i < argument[1]; i++) {
                notebook.activeCellIndex = argument[0];
                await window.jupyterapp.commands.execute("notebook:run-cell");
            }
        })();"""
        self._run(script, [index, times])
        self.wait_idle()

    def cell_count(self) -> int:
        """Number of cells of the notebook."""
        return int(self._run("return cells.length;"))

    def cell_source(self, index: int) -> str:
        """Return the text in a cell's editor."""
        return str(self._run("return cells[argument].model.sharedModel.getSource();", index))

    def set_cell(self, index: int, source: str) -> None:
        """Write into a cell's editor."""
        script = "cells[argument[0]].model.sharedModel.setSource(argument[1]);"
        self._run(script, [index, source])

    def make_markdown(self, index: int) -> Locator:
        """Turn a cell into one of Markdown; returns its editor."""
        self._run(_SELECT, index)
        self._command("notebook:change-cell-to-markdown")
        return self.cell(index).locator(".cm-content")

    def cell_outputs(self, index: int) -> list[dict[str, Any]]:
        """Return the outputs of a cell as the notebook file would hold them."""
        script = "return JSON.stringify(cells[argument].model.outputs.toJSON());"
        outputs: list[dict[str, Any]] = json.loads(self._run(script, index))
        return outputs

    def cell_text(self, index: int) -> str:
        """Return what a reader who scrolls there sees below a cell now."""
        self.cell(index).scroll_into_view_if_needed()
        # JupyterLab leaves cells out of sight without a layout; one that has come into sight has it a frame later.
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        return self.output(index).inner_text()

    def wait_for_text(self, index: int, text: str, timeout: float = 30) -> None:
        """Wait until a reader sees `text` below a cell."""
        expect(self.output(index)).to_contain_text(text, timeout=timeout * 1000)

    def wait_for_longer_text(self, index: int, length: int, timeout: float = 30) -> str:
        """Wait until the text below a cell has more than `length` characters; return it."""
        script = "return cells[argument[0]].outputArea.node.innerText.length > argument[1];"
        self._wait(script, [index, length], timeout=timeout)
        return self.cell_text(index)

    def widget_errors(self) -> list[str]:
        """Return what JupyterLab says in the place of widgets that it cannot show."""
        said = str(self._run("return panel.node.textContent;"))
        return [complaint for complaint in _WIDGET_COMPLAINTS if complaint in said]

    def click(self, index: int, name: str) -> None:
        """Click the button with this name below a cell."""
        self.output(index).get_by_role("button", name=name).click()

    def drag(self, source: Locator, target: Locator) -> None:
        """Drag something of JupyterLab's own with the mouse, in steps as a hand does."""
        start, end = (self._middle(locator) for locator in (source, target))
        mouse = self.page.mouse
        mouse.move(*start)
        mouse.down()
        mouse.move(start[0] + 12, start[1] + 12, steps=4)
        mouse.move(*end, steps=12)
        mouse.up()

    # -- kernel and file

    def interrupt_kernel(self) -> None:
        """Choose Kernel > Interrupt."""
        self._command("notebook:interrupt-kernel")

    def restart_kernel(self) -> None:
        """Choose Kernel > Restart, say yes, and wait until the new kernel is ready."""
        # JupyterLab forgets all comms at a restart, and then complains about the last messages of the old kernel.
        self.forgive("Comm not found")
        self._run(_START % "notebook:restart-kernel")
        self.page.locator(".jp-Dialog .jp-mod-accept").click()
        self.page.locator(".jp-Dialog").wait_for(state="detached")
        self.wait_idle()

    def save(self) -> None:
        """Save the notebook."""
        self._command("docmanager:save")

    def is_unsaved(self) -> bool:
        """Return whether JupyterLab sees changes since the last save."""
        return bool(self._run("return panel.context.model.dirty;"))

    def toggle_widget_state(self) -> None:
        """Choose Settings > Save Widget State Automatically."""
        self._command("@jupyter-widgets/jupyterlab-manager:saveWidgetState")

    # -- what a test looks at

    def screenshot(self, name: str, locator: Locator | None = None) -> Path:
        """Save a picture of the page, or of a part of it, for people to look at."""
        self._artifacts.mkdir(parents=True, exist_ok=True)
        path = self._artifacts / f"{name}.png"
        (locator or self.page).screenshot(path=path)
        return path

    # -- the machinery

    def _wait_for_notebook(self, name: str, *, kernel: bool = True) -> None:
        script = "return panel?.context?.path === argument && panel.context.isReady && cells.length"
        idle = _KERNEL_IS_IDLE.removeprefix("\nreturn") if kernel else ""
        self._wait(f"{script} && {idle}" if kernel else script, name, timeout=LOAD_SECONDS)

    def _command(self, command: str, arguments: dict[str, Any] | None = None) -> None:
        script = (
            "return window.jupyterapp.commands.execute(argument[0], argument[1]).then(() => 1);"
        )
        self._run(script, [command, arguments or {}])

    def _run(self, script: str, argument: Any = None) -> Any:
        return self.page.evaluate(f"(argument) => {{{_NOTEBOOK}{script}}}", argument)

    def _wait(self, script: str, argument: Any = None, *, timeout: float) -> None:
        function = f"(argument) => {{{_NOTEBOOK}{script}}}"
        self.page.wait_for_function(function, arg=argument, timeout=timeout * 1000)

    @staticmethod
    def _middle(locator: Locator) -> tuple[float, float]:
        box = locator.bounding_box()
        assert box is not None, "it is not shown"
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def _note_console(self, message: Any) -> None:
        if message.type == "error":
            self._note_error(message.text)

    def _note_error(self, text: str) -> None:
        if not any(forgiven in text for forgiven in self._forgiven):
            self.errors.append(text)
