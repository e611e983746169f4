"""static/dropzone.js in a real browser with a kernel that loses messages, falls silent, or ends."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

import kernelserve as ks
from kernelserve_widgets.dropzone.zone_limits import ZoneLimits
from tests.helpers.pictures import encode, random_picture
from tests.helpers.widget_page import WidgetPage, open_widget_page

pytestmark = pytest.mark.browser

CHUNK = 1000
EMPTY = {
    "pictures": [],
    "problems": [],
    "line": "",
    "asking": "",
    "brief": False,
    "replaces": False,
}
HOSTILE = "<img src=x onerror=alert(1)>.png"
# A kernel that is there until `comm_live` says otherwise, as the manager of JupyterLab's widgets shows it.
_MANAGER = """
window.inner = {
    comm_live: true, handlers: [],
    on(name, handler) { this.handlers.push(handler); },
};
window.manager = { get_model: async () => window.inner };
"""
_DROP = """([name, data]) => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const transfer = new DataTransfer();
    transfer.items.add(new File([bytes], name, { type: "image/png" }));
    const event = new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: transfer });
    document.querySelector(".ks-pad").dispatchEvent(event);
}"""

_KEEP_CHUNKS = """() => {
    window.chunks = [];
    models[0].send = function (message, _, buffers) {
        this.sent.push(message);
        if (message.kind === "chunk") window.chunks.push(buffers[0]);
    };
}"""
_SIZES_OF_CHUNKS = """async () => Promise.all(window.chunks.map(async (chunk) => {
    const picture = await createImageBitmap(new Blob([chunk], { type: "image/jpeg" }));
    return [picture.width, picture.height];
}))"""


@pytest.fixture(scope="module")
def browser_page() -> Iterator[WidgetPage]:
    with open_widget_page() as page:
        yield page


@pytest.fixture
def page(browser_page) -> Iterator[WidgetPage]:
    """A page with the zone as model 0, whose messages are answered by the test."""
    browser_page.reset()
    browser_page.page.evaluate(f"() => {{ {_MANAGER} }}")
    limits = ZoneLimits(ks.ImageLimits(), chunk=CHUNK, window=2).to_json()
    browser_page.open("dropzone", {"state": EMPTY | {"limits": limits}, "view_id": "v"}, "manager")
    browser_page.add_view(0)
    assert browser_page.sent(0) == [{"kind": "hello"}]
    yield browser_page
    assert browser_page.errors == []
    assert browser_page.page.evaluate("window.alerts") == []


def drop(page: WidgetPage, name: str = "a.png") -> int:
    """Drop a picture of several chunks; returns its size."""
    data = encode(random_picture(200, 150))
    assert 2 * CHUNK < len(data) < 4 * CHUNK
    page.page.evaluate(_DROP, [name, base64.b64encode(data).decode()])
    return len(data)


def wait_for_sent(page: WidgetPage, count: int) -> list[dict[str, Any]]:
    page.page.wait_for_function(f"models[0].sent.length >= {count}")
    return page.sent(0)


def problem(page: WidgetPage) -> str:
    return str(page.page.locator(".ks-problem").inner_text())


def test_chunks_wait_for_the_kernel_and_lost_ones_are_sent_again(page) -> None:
    size = drop(page, HOSTILE)
    begin, *chunks = wait_for_sent(page, 3)
    key = begin["upload"]
    assert (begin["kind"], begin["name"], begin["bytes"]) == ("begin", HOSTILE, size)
    assert [chunk["at"] for chunk in chunks] == [0, CHUNK], "no more until they are there"
    assert page.page.locator("progress").get_attribute("aria-label") == f"{HOSTILE}: 0 %"
    [ask] = wait_for_sent(page, 1)  # after some seconds without a word
    assert ask == {"kind": "ask", "upload": key}
    assert "waiting for the kernel" in page.page.locator(".ks-job").inner_text()
    page.emit(0, {"got": key, "bytes": 0, "missing": [CHUNK]})
    [again] = wait_for_sent(page, 1)
    assert again == {"kind": "chunk", "upload": key, "at": CHUNK}
    page.emit(0, {"got": key, "bytes": 2 * CHUNK, "missing": []})
    assert [chunk["at"] for chunk in wait_for_sent(page, 1)] == [2 * CHUNK]
    page.emit(0, {"landed": key})
    assert wait_for_sent(page, 1)[-1]["kind"] == "end"
    assert page.page.locator(".ks-job, .ks-problem").count() == 0


def test_an_upload_that_the_kernel_does_not_know_any_more_is_said(page) -> None:
    drop(page)
    key = wait_for_sent(page, 3)[0]["upload"]
    page.emit(0, {"unknown": key})
    assert "a.png was not sent to the end: the upload was interrupted. Drop it again" in problem(
        page
    )
    drop(page)
    assert wait_for_sent(page, 4)[-1]["kind"] == "chunk", "the next one is sent"


def test_a_kernel_that_ends_is_said(page) -> None:
    drop(page)
    wait_for_sent(page, 3)
    page.page.evaluate("inner.comm_live = false; inner.handlers.forEach((one) => one())")
    page.page.get_by_text("Not connected to the kernel any more: run this cell again").wait_for()
    assert "the kernel has ended" in problem(page)
    drop(page)
    page.page.get_by_text("the kernel of this zone has ended: run its cell again").wait_for()
    assert page.sent(0) == []


def test_an_upload_can_be_cancelled_by_keyboard(page) -> None:
    drop(page)
    wait_for_sent(page, 3)
    page.page.get_by_role("button", name="Stop sending a.png").press("Enter")
    assert [one["kind"] for one in wait_for_sent(page, 2)] == ["drop", "end"]
    assert "a.png was not sent to the end" in problem(page)


def test_what_is_too_large_is_made_as_small_as_the_kernel_says(page) -> None:
    limits = ZoneLimits(ks.ImageLimits(), as_it_is=100).for_model(600).to_json()
    page.emit(0, {"state": EMPTY | {"limits": limits}})
    page.page.evaluate(_KEEP_CHUNKS)
    data = encode(random_picture(900, 400))
    page.page.evaluate(_DROP, ["a.png", base64.b64encode(data).decode()])
    begin, _ = wait_for_sent(page, 2)
    assert begin["note"].endswith(", 900 x 400"), "what it was"
    [[width, height]] = page.page.evaluate(_SIZES_OF_CHUNKS)
    assert (width, height) == (600, 267)


def test_names_are_text_and_everything_has_a_label(page) -> None:
    line = "--image images/0.png"
    picture = {"name": HOSTILE, "text": HOSTILE, "file": HOSTILE, "line": line, "thumbnail": "x"}
    limits = page.page.evaluate("models[0].traits.state.limits")
    state = EMPTY | {"pictures": [picture] * 2, "problems": [HOSTILE], "line": f"{line} {line}"}
    page.emit(0, {"state": state | {"limits": limits}})
    assert page.page.locator(".ks-picture .ks-name").all_text_contents() == [HOSTILE] * 2
    assert page.page.get_by_role("img", name=HOSTILE).count() == 2
    names = [node.get_attribute("aria-label") for node in page.page.get_by_role("button").all()]
    assert all(names)
    assert page.page.get_by_role("status").inner_text() == "2 pictures"
    page.page.get_by_role("group").focus()
    for name in names[:3]:
        page.page.keyboard.press("Tab")
        assert page.page.evaluate("document.activeElement.getAttribute('aria-label')") == name


_PASTE = """(data) => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const clipboardData = new DataTransfer();
    clipboardData.items.add(new File([bytes], "image.png", { type: "image/png" }));
    const event = new ClipboardEvent("paste", { bubbles: true, cancelable: true, clipboardData });
    document.activeElement.dispatchEvent(event);
    return event.defaultPrevented;
}"""


def test_a_paste_goes_where_the_pointer_is_but_not_away_from_an_editor(page) -> None:
    data = base64.b64encode(encode(random_picture(20, 20))).decode()
    page.page.mouse.move(5, 600)
    assert not page.page.evaluate(_PASTE, data), "neither focus nor pointer is here"
    page.page.locator(".ks-drop").hover()
    assert page.page.evaluate(_PASTE, data)
    assert wait_for_sent(page, 2)[0]["name"] == "pasted picture"
    page.page.evaluate("document.body.append(document.createElement('textarea'))")
    page.page.evaluate("document.querySelector('textarea').focus()")
    assert not page.page.evaluate(_PASTE, data)


def test_what_the_browser_cannot_read_is_sent_as_it_is_below_the_limit_and_said_above(page) -> None:
    drop_zeros = """(size) => {
        const transfer = new DataTransfer();
        transfer.items.add(new File([new Uint8Array(size)], "scan.tif", { type: "image/tiff" }));
        const event = new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: transfer });
        document.querySelector(".ks-pad").dispatchEvent(event);
    }"""
    page.page.evaluate(drop_zeros, 2 * CHUNK)
    begin, *chunks = wait_for_sent(page, 3)
    assert (begin["bytes"], len(chunks)) == (2 * CHUNK, 2)
    page.emit(0, {"landed": begin["upload"]})
    wait_for_sent(page, 1)
    limit = ks.ImageLimits().max_bytes
    page.page.evaluate(drop_zeros, limit + 100_000)
    page.page.locator(".ks-problem").wait_for()
    assert "scan.tif: it has 67.2 MB, the limit is 67.1 MB" in problem(page)
    assert "make it smaller" in problem(page)
    assert [one["kind"] for one in wait_for_sent(page, 1)] == ["end"]
