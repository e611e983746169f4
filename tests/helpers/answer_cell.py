"""A %%generate cell on a page of JupyterLab, while its answer streams."""

from __future__ import annotations

from playwright.sync_api import Locator

from tests.helpers.lab_page import LabPage

__all__ = ["AnswerCell"]

_RECORD = """(output, index) => {
  const texts = ((window.ksTexts ??= {})[index] = []);
  new MutationObserver(() => {
    const text = output.querySelector(".ks-text")?.textContent;
    if (text && text !== texts.at(-1)) texts.push(text);
  }).observe(output, { childList: true, subtree: true, characterData: true });
}"""


class AnswerCell:
    """What a reader sees and can do below the cell with this index."""

    def __init__(self, lab: LabPage, index: int) -> None:
        self._lab = lab
        self._index = index

    @property
    def pane(self) -> Locator:
        """The text of the first answer while it is live; nothing when the static output has taken its place."""
        return self._lab.output(self._index).locator(".ks-text").first

    def start(self) -> str:
        """Run the cell and return the first text that is seen."""
        self._lab.run_cell(self._index)
        return self.wait_for_more()

    def wait_for_more(self, than: str = "", timeout: float = 20) -> str:
        """Wait until the live answer is longer than a text that was seen, and return it."""
        text: str = self._lab.page.wait_for_function(
            "([node, length]) => node.textContent.length > length && node.textContent",
            arg=[self.pane.element_handle(timeout=timeout * 1000), len(than)],
            timeout=timeout * 1000,
        ).json_value()
        return text

    def record(self) -> None:
        """From now on remember every text of the first live answer."""
        self._lab.output(self._index).evaluate(_RECORD, self._index)

    def recorded(self) -> list[str]:
        """Return the texts that the first live answer had since `record`, however soon they were gone again."""
        texts: list[str] = self._lab.page.evaluate("(index) => window.ksTexts[index]", self._index)
        return texts

    def stop(self) -> None:
        """Click Stop."""
        self.stop_button.click()

    @property
    def stop_button(self) -> Locator:
        """The button below the live answer."""
        return self._lab.output(self._index).get_by_role("button", name="Stop")
