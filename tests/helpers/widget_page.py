"""A page in a real Chromium that runs the scripts of the widgets with a model that a test controls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kernelserve_widgets.views.static_files import script, style
from tests.helpers.chromium import CHROMIUM_FLAGS, require_chromium

__all__ = ["WidgetPage", "open_widget_page"]

_HARNESS = """
window.alerts = [];
window.alert = (text) => window.alerts.push(String(text));
window.models = [];

// What anywidget gives a widget: a model with get, on, off and send. `sent` is what reached the kernel.
function makeModel(traits, manager) {
  const handlers = new Set();
  return {
    traits, sent: [], views: [], widget_manager: manager,
    get: (name) => traits[name],
    on: (name, handler) => name === "msg:custom" && handlers.add(handler),
    off: (name, handler) => handlers.delete(handler),
    send(message) { this.sent.push(message); },
    emit: (message) => handlers.forEach((handler) => handler(message, [])),
  };
}

window.openModel = async (source, traits, manager) => {
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  const module = await import(url);
  const model = makeModel(traits, manager && window[manager]);
  model.definition = typeof module.default === "function" ? await module.default() : module.default;
  await (model.definition.initialize || (() => {}))({ model });
  window.models.push(model);
  return window.models.length - 1;
};
window.addView = async (number, parent) => {
  const model = window.models[number];
  const el = document.createElement("div");
  (parent ? document.querySelector(parent) : document.body).append(el);
  const remove = await model.definition.render({ model, el });
  model.views.push({ el, remove });
  return model.views.length - 1;
};
window.textsOf = (number, view) =>
  [...window.models[number].views[view].el.querySelectorAll(".ks-text")].map((node) => node.textContent);
"""


class WidgetPage:
    """Models and their views, by number, in the order in which they were made."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def reset(self, *, body_style: str = "", dark: bool = False) -> None:
        """Begin with an empty page."""
        self.errors.clear()
        self.page.emulate_media(color_scheme="dark" if dark else "light")
        self.page.set_content(
            f"<!doctype html><meta name=color-scheme content='{'dark' if dark else 'light'}'>"
            f"<style>{style()}</style><body style='{body_style}'></body>"
        )
        self.page.evaluate(
            f"() => {{ {_HARNESS} }}".replace("function makeModel", "window.makeModel = function")
        )

    def open(self, name: str, traits: dict[str, Any], manager: str = "") -> int:
        """Make a model that runs static/<name>.js; returns its number."""
        return self.open_source(script(name), traits, manager)

    def open_source(self, source: str, traits: dict[str, Any], manager: str = "") -> int:
        """Make a model that runs this script; returns its number."""
        number: int = self.page.evaluate(
            "([source, traits, manager]) => openModel(source, traits, manager)",
            [source, traits, manager],
        )
        return number

    def add_view(self, model: int, parent: str = "") -> int:
        """Render a view of a model; returns its number."""
        number: int = self.page.evaluate("([m, p]) => addView(m, p)", [model, parent])
        return number

    def emit(self, model: int, *messages: Any) -> None:
        """Let messages of the kernel arrive."""
        self.page.evaluate(
            "([m, all]) => all.forEach((one) => models[m].emit(one))", [model, messages]
        )

    def texts(self, model: int, view: int = 0) -> list[str]:
        """Return what a view shows of each answer."""
        shown: list[str] = self.page.evaluate("([m, v]) => textsOf(m, v)", [model, view])
        return shown

    def sent(self, model: int) -> list[dict[str, Any]]:
        """Return what the views sent to the kernel so far, and forget it."""
        messages: list[dict[str, Any]] = self.page.evaluate(
            "(m) => models[m].sent.splice(0)", model
        )
        return messages


@contextmanager
def open_widget_page(width: int = 900, height: int = 700) -> Iterator[WidgetPage]:
    """Yield a page. Without a Chromium the test is skipped, but fails in CI."""
    from playwright.sync_api import sync_playwright

    path = require_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(CHROMIUM_FLAGS))
        try:
            yield WidgetPage(browser.new_page(viewport={"width": width, "height": height}))
        finally:
            browser.close()
