"""A drop zone in a page of JupyterLab, used the way a person uses it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, expect

from tests.helpers.lab_page import LabPage

__all__ = ["ZonePage", "drop_files"]

# A file cannot be put into a real drag, but the event that the browser makes of one can be made with a real File.
_FILES = """
const transfer = new DataTransfer();
for (const [name, type, data] of files) {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    transfer.items.add(new File([bytes], name, { type }));
}
"""
_DROP = f"""(target, files) => {{
{_FILES}
for (const kind of ["dragenter", "dragover", "drop"]) {{
    const event = new DragEvent(kind, {{ bubbles: true, cancelable: true, dataTransfer: transfer }});
    target.dispatchEvent(event);
}}
}}"""
_PASTE = f"""(zone, files) => {{
{_FILES}
const event = new ClipboardEvent("paste", {{ bubbles: true, cancelable: true, clipboardData: transfer }});
document.activeElement.dispatchEvent(event);
return event.defaultPrevented;
}}"""
File = tuple[str, str, bytes]
"""Name, MIME type, content."""


class ZonePage:
    """The drop zone below one cell."""

    def __init__(self, lab: LabPage, cell: int) -> None:
        self._lab = lab
        self._cell = cell
        self.node: Locator = lab.output(cell).locator(".ks-drop")
        self.pictures = self.node.locator(".ks-picture")
        self.problems = self.node.locator(".ks-problem")

    def wait(self) -> ZonePage:
        """Wait until it is shown."""
        expect(self.node).to_have_count(1)
        expect(self.node).to_be_visible()
        return self

    def drop(self, *files: File) -> None:
        """Drop files from the desktop onto it."""
        drop_files(self.node.locator(".ks-pad"), *files)

    def paste(self, *files: File) -> bool:
        """Press Ctrl+V with files in the clipboard, wherever the focus is. Returns whether somebody took them."""
        return bool(self.node.evaluate(_PASTE, _encoded(files)))

    def choose(self, *paths: Path) -> None:
        """Choose files in the dialog of the button."""
        with self._lab.page.expect_file_chooser() as dialog:
            self.node.get_by_role("button", name="Choose picture files").click()
        dialog.value.set_files([str(path) for path in paths])

    def wait_for_pictures(self, count: int, timeout: float = 20) -> list[str]:
        """Wait until it shows so many pictures; returns their names."""
        expect(self.pictures).to_have_count(count, timeout=timeout * 1000)
        return self.node.locator(".ks-picture .ks-name").all_text_contents()

    def wait_for_problem(self, text: str, timeout: float = 20) -> None:
        """Wait for a message with this text."""
        expect(self.problems.filter(has_text=text)).to_have_count(1, timeout=timeout * 1000)

    def lines(self) -> list[str]:
        """The options that load its pictures, as shown."""
        return self.node.locator(".ks-picture .ks-line").all_text_contents()


def drop_files(target: Locator, *files: File) -> None:
    """Drop files from the desktop onto something."""
    target.evaluate(_DROP, _encoded(files))


def _encoded(files: tuple[File, ...]) -> list[list[Any]]:
    return [[name, mime, base64.b64encode(data).decode()] for name, mime, data in files]
