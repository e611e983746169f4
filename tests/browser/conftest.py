"""One JupyterLab and one browser page for all tests here; a fresh notebook for each."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.helpers.chromium import CHROMIUM_FLAGS, require_chromium
from tests.helpers.lab_page import LabPage
from tests.helpers.lab_server import LabServer
from tests.helpers.leftovers import assert_nothing_left
from tests.helpers.tokenizers import fake_model_that_speaks

OpenNotebook = Callable[..., str]

ARTIFACTS = Path(os.environ.get("KERNELSERVE_ARTIFACTS") or Path(__file__).parent / "artifacts")
_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Let the fixtures know whether the test failed."""
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture(scope="package")
def chromium() -> str:
    """Path of Chromium."""
    return require_chromium()


@pytest.fixture(scope="package")
def server(chromium) -> Iterator[LabServer]:
    """A JupyterLab that ends with the last test of this folder."""
    with LabServer() as server:
        yield server


@pytest.fixture(scope="package")
def shared_page(chromium, server) -> Iterator[LabPage]:
    """The page of all tests: loading JupyterLab costs seconds, opening a notebook does not.

    Playwright's event loop occupies the test's thread, so it ends with this folder, before tests that run loops.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(CHROMIUM_FLAGS))
        context = browser.new_context(viewport={"width": 1280, "height": 1000})
        lab = LabPage(context, server, ARTIFACTS)
        lab.load()
        yield lab
        context.close()
        browser.close()


@pytest.fixture
def lab(shared_page, server, request) -> Iterator[LabPage]:
    """The page with nothing open. Afterwards no kernel, engine or file of theirs is left, and the page had no error.

    The screen of a failed test is kept in the folder of the artifacts.
    """
    shared_page.close_all()
    shared_page.forget_errors()
    shared_page.traffic.clear()
    yield shared_page
    failed = request.node.stash.get(_FAILED, False)
    errors = list(shared_page.errors)
    if failed:
        shared_page.screenshot(f"failed-{request.node.name}")
        shared_page.is_fresh = False
    if shared_page.is_fresh:
        shared_page.close_all()
    else:
        shared_page.load()
    server.shutdown_kernels()
    assert_nothing_left(server.runtime_folder)
    if errors and not failed:
        pytest.fail("the page had errors:\n" + "\n".join(errors))


@pytest.fixture
def open_notebook(lab, server, request) -> OpenNotebook:
    """Opens a new notebook with the given cells and returns its name."""
    numbers = itertools.count(1)

    def open_notebook(*cells: str) -> str:
        name = f"{request.node.name}-{next(numbers)}.ipynb"
        server.write_notebook(name, cells)
        lab.open(name)
        return name

    return open_notebook


@pytest.fixture(scope="package")
def model(tmp_path_factory) -> str:
    """A model that says some 50 pieces of words a second, in English letters and without sense."""
    return fake_model_that_speaks(tmp_path_factory.mktemp("model"), step_seconds=0.02)


@pytest.fixture
def open_served(lab, open_notebook, model) -> OpenNotebook:
    """Opens a notebook whose first cell has loaded the magics and started the engine; the given cells follow."""

    def open_served(*cells: str, model: str = model) -> str:
        name: str = open_notebook(f"%load_ext kernelserve\n%serve {model} --fake-model", *cells)
        [shown] = lab.run(0)
        assert shown["output_type"] == "display_data", shown
        return name

    return open_served
