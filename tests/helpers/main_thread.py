"""How long a page could not react while something went on."""

from __future__ import annotations

import json

from playwright.sync_api import Browser, Page

__all__ = ["MainThread"]


class MainThread:
    """Measures from entry to exit the tasks of the thread that draws a page and reacts to its reader.

    A task is measured in the CPU time that it took: on a machine that is busy with other things its time on the clock
    says more about those. One measurement of a browser at a time.
    """

    def __init__(self, page: Page) -> None:
        self._page = page
        self.longest_task = 0.0
        """CPU seconds of the longest task, after exit."""

    def __enter__(self) -> MainThread:
        self._browser.start_tracing(page=self._page, categories=["toplevel"])
        return self

    def __exit__(self, *_: object) -> None:
        # A task is in the trace once it has ended, which the answer to what it did may precede.
        self._page.evaluate("() => new Promise((done) => setTimeout(done))")
        events = json.loads(self._browser.stop_tracing())["traceEvents"]
        drawing = {
            (event["pid"], event["tid"])
            for event in events
            if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
        }
        tasks = [
            event.get("tdur", 0)  # none for a task that had begun before
            for event in events
            if event["name"].endswith("RunTask") and (event["pid"], event["tid"]) in drawing
        ]
        self.longest_task = max(tasks) / 1e6

    @property
    def _browser(self) -> Browser:
        browser = self._page.context.browser
        assert browser is not None
        return browser
