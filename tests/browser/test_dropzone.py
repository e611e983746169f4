"""Pictures on their way into a notebook: user-needs C12 and C13 by their numbers."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image
from playwright.sync_api import WebSocket, expect

from tests.helpers.pictures import encode, random_picture
from tests.helpers.zone_page import ZonePage, drop_files

pytestmark = [pytest.mark.browser, pytest.mark.notebook, pytest.mark.timeout(240)]

FACTS = (
    "import hashlib\n"
    "[(p.name, p.mime, p.size, p.file, hashlib.sha256(p.data).hexdigest()) for p in zone.images]"
)
STATE_MIME = "application/vnd.jupyter.widget-state+json"


def value(lab, cell: int):
    """Run a cell whose value is plain, and return that."""
    [output] = lab.run(cell)
    return eval(output["data"]["text/plain"])


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def pictures(count: int) -> list[bytes]:
    return [encode(random_picture(200, 150, seed)) for seed in range(count)]


def note_sizes(sizes: list[int], socket: WebSocket) -> None:
    """Note the size of everything that the page sends to a kernel."""
    socket.on("framesent", lambda frame: sizes.append(len(frame)))


def large_photo(path: Path) -> Path:
    """Write a photo of more than 25 MB whose camera was held upright: red above, blue below, as it is to be seen."""
    noise = np.random.default_rng(0).integers(0, 256, (2304, 3072, 3), dtype=np.uint8)
    noise[:, :1536, 2] //= 8  # left of what the sensor saw: red, no blue
    noise[:, 1536:, 0] //= 8
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6  # turn right to see it: the left becomes the top
    Image.fromarray(noise).save(path, quality=100, subsampling=0, exif=exif)
    assert path.stat().st_size > 25_000_000
    return path


def test_c12_every_way_in_and_every_refusal_is_said(lab, open_notebook, server, tmp_path) -> None:
    sent: list[int] = []
    watch = partial(note_sizes, sent)
    lab.page.on("websocket", watch)
    open_notebook("import kernelserve as ks\nzone = ks.dropzone()", FACTS, "zone.clear()")
    lab.page.remove_listener("websocket", watch)
    lab.run(0)
    zone = ZonePage(lab, 0).wait()
    lab.screenshot("dropzone-empty")
    first, second = pictures(2)
    noise = np.random.default_rng(0).integers(0, 256, (900, 800, 3), dtype=np.uint8)
    third = encode(Image.fromarray(noise))
    zone.drop(("a.png", "image/png", first))
    zone.wait_for_pictures(1)
    zone.node.focus()
    assert zone.paste(("image.png", "image/png", second))
    zone.wait_for_pictures(2)
    path = tmp_path / "chosen.png"
    path.write_bytes(third)
    zone.choose(path)
    assert zone.wait_for_pictures(3) == ["a.png", "pasted picture", "chosen.png"]
    lab.screenshot("dropzone-three")
    assert [facts[4] for facts in value(lab, 1)] == [
        digest(one) for one in (first, second, third)
    ], "byte for byte, in order"

    zone.drop(
        ("notes.txt", "text/plain", b"no picture"),
        ("line.png", "image/png", encode(Image.new("RGB", (2000, 2)))),
        ("cut.png", "image/png", first[:300]),
        ("folder", "", b""),
    )
    zone.wait_for_problem("notes.txt: it is no picture (text/plain, 10 bytes): drop PNG, JPEG")
    zone.wait_for_problem(
        "line.png: the image is 2,000 by 2 pixels, but each side must have at least 4"
    )
    zone.wait_for_problem("cut.png: the image is damaged")
    zone.wait_for_problem("folder: it is empty, or a folder")
    assert zone.paste(), "nothing in the clipboard"
    zone.wait_for_problem("the clipboard holds no picture")
    assert zone.problems.count() == 5
    lab.screenshot("dropzone-problems")
    zone.node.get_by_role("button", name="Hide this message").first.click()
    assert zone.problems.count() == 4

    zone.choose(large_photo(tmp_path / "photo.jpg"))
    zone.wait_for_pictures(4, timeout=60)
    lab.screenshot("dropzone-large")
    name, mime, size, file, _ = value(lab, 1)[3]
    assert (name, mime, size) == ("photo.jpg", "image/jpeg", (1536, 2048)), "upright, as it is seen"
    assert zone.problems.count() == 0, "what was said of earlier drops has gone"
    assert "made smaller from" in zone.pictures.nth(3).inner_text()
    seen = np.asarray(Image.open(server.root / file))
    assert seen[:1000, :, 0].mean() > 2 * seen[:1000, :, 2].mean(), "red above"
    assert seen[-1000:, :, 2].mean() > 2 * seen[-1000:, :, 0].mean()

    zone.node.get_by_role("button", name="Take pasted picture out").press("Enter")
    assert zone.wait_for_pictures(3) == ["a.png", "chosen.png", "photo.jpg"]
    assert zone.node.evaluate("zone => zone.contains(document.activeElement)"), "focus stays here"
    lab.run(2)
    zone.wait_for_pictures(0)
    assert 500_000 < max(sent) < 1_000_000, "chunks below 1 MB"


def test_c13_running_cells_get_pictures_and_a_restart_keeps_them(
    lab, open_notebook, server
) -> None:
    first, second, third = pictures(3)
    (server.root / "shelf.png").write_bytes(third)
    name = open_notebook(
        'import kernelserve as ks\nzone = ks.dropzone("photos")',
        "picture = await zone.next()\npicture.name, picture.size",
        "import time\nwhile len(zone) < 2: time.sleep(0.05)",
        FACTS,
        "zone",
    )
    lab.run(0)
    zone = ZonePage(lab, 0).wait()
    lab.run_cell(1)
    zone.drop(("a.png", "image/png", first))
    lab.wait_idle()
    [output] = lab.cell_outputs(1)
    assert eval(output["data"]["text/plain"]) == ("a.png", (200, 150)), "in a cell that awaits"
    lab.run_cell(2)
    zone.drop(("b.png", "image/png", second))
    lab.wait_idle()  # it comes while a cell blocks
    lab.page.evaluate("window.jupyterapp.shell.expandLeft()")
    shelf = lab.page.locator(".jp-DirListing-item", has_text="shelf.png")
    shelf.wait_for()
    zone.wait_for_pictures(2)
    zone.node.scroll_into_view_if_needed()
    lab.drag(shelf, zone.node)
    assert zone.wait_for_pictures(3) == ["a.png", "b.png", "shelf.png"]
    lab.screenshot("dropzone-file-browser")
    lab.page.evaluate("window.jupyterapp.shell.collapseLeft()")
    facts = value(lab, 3)
    assert [one[4] for one in facts] == [digest(one) for one in (first, second, third)]
    assert [(server.root / one[3]).read_bytes() for one in facts] == [first, second, third]
    assert zone.lines() == [f"--image {one[3]}" for one in facts]

    lab.save()
    saved = server.read_notebook(name)
    [output] = saved["cells"][0]["outputs"]
    assert all(one[3] in output["data"]["text/plain"] for one in facts), "read without widgets"
    assert output["data"]["image/jpeg"]
    [kept] = saved["metadata"]["widgets"][STATE_MIME]["state"].values()
    assert all(one[3] in kept["state"]["value"] for one in facts), "opened without its kernel"

    lab.restart_kernel()
    zone.node.get_by_text("Not connected to the kernel any more").wait_for()
    lab.set_cell(1, "1")
    lab.run_all()
    lab.wait_idle()
    [output] = lab.cell_outputs(3)
    assert eval(output["data"]["text/plain"]) == facts, "the same, after a restart and Run All"
    assert len(lab.output(4).locator(".ks-picture").all()) == 3, "shown where it is the value"
    lab.screenshot("dropzone-restarted")
    assert lab.widget_errors() == []


@pytest.mark.process
def test_c13_a_cell_asks_for_its_picture_and_has_it_after_a_restart(
    lab, open_notebook, server, vision_model
) -> None:
    ask = "%%generate --image drop --temperature 0 --max-tokens 6 --ignore-eos -o answer;\nWhat is it?"
    ids = "answer.token_ids, answer.usage.num_prompt_tokens"
    name = open_notebook(vision_model, ask, ids, ask.replace("drop", "clipboard"))
    lab.run(0, timeout=60)
    lab.run_cell(1)
    zone = ZonePage(lab, 1).wait()
    zone.node.get_by_text("Drop a picture here").wait_for()
    lab.screenshot("drop-asking")
    zone.drop(("notes.txt", "text/plain", b"no picture"))
    zone.wait_for_problem("notes.txt: it is no picture")
    [data] = pictures(1)
    zone.drop(("a.png", "image/png", data))
    lab.wait_idle(60)
    lab.screenshot("drop-answered")
    before = value(lab, 2)
    zone_output, shown, text = lab.cell_outputs(1)
    [file] = shown["metadata"]["kernelserve"]["images"]
    assert (server.root / file).read_bytes() == data
    assert shown["data"]["image/jpeg"]
    assert file in zone_output["data"]["text/plain"]
    lab.save()
    _, saved, saved_text = server.read_notebook(name)["cells"][1]["outputs"]
    assert (saved["data"], saved_text["data"]) == (shown["data"], text["data"])

    lab.restart_kernel()
    lab.set_cell(3, "")
    lab.run_all()
    lab.wait_idle(60)
    assert eval(lab.cell_outputs(2)[0]["data"]["text/plain"]) == before, (
        "the same image reached the model"
    )
    assert lab.cell_outputs(1)[1]["data"] == shown["data"]

    lab.set_cell(3, ask.replace("drop", "clipboard"))
    lab.run_cell(3)
    zone = ZonePage(lab, 3).wait()
    zone.node.get_by_text("Press Ctrl+V here").wait_for()
    zone.node.get_by_role("button", name="Do not wait").click()
    lab.wait_idle(5)
    error = lab.cell_outputs(3)[-1]
    assert (error["ename"], error["evalue"]) == (
        "KeyboardInterrupt",
        "the wait for a picture was ended",
    )
    lab.run_cell(3)
    zone.node.get_by_text("Press Ctrl+V here").wait_for()
    lab.interrupt_kernel()
    lab.wait_idle(5)
    assert lab.cell_outputs(3)[-1] == error
    lab.set_cell(3, "%%time\n" + lab.cell_source(3).replace("answer", "pasted"))  # it blocks
    lab.run_cell(3)
    zone.node.get_by_text("Press Ctrl+V here").wait_for()
    zone.node.focus()
    assert zone.paste(("image.png", "image/png", data))
    lab.wait_idle(30)
    lab.screenshot("clipboard-answered")
    lab.set_cell(3, ids.replace("answer", "pasted"))
    assert value(lab, 3) == before, "the same picture, by another way"

    editor = lab.make_markdown(1)
    drop_files(editor, ("a.png", "image/png", data))  # JupyterLab's own way
    expect(editor).to_contain_text("attachment:")
    lab.save()
    lab.set_cell(3, ask.replace("drop", "attachment").replace("answer", "other"))
    [shown, _] = lab.run(3, timeout=60)
    assert shown["data"]["image/jpeg"]
    lab.set_cell(3, ids.replace("answer", "other"))
    assert value(lab, 3) == before, "B9: attachments"
    lab.set_cell(3, "%engine stop")
    lab.run(3)


@pytest.fixture(scope="module")
def vision_model(tmp_path_factory) -> str:
    """A cell that starts a tiny random model which takes images."""
    from tests.helpers.vision_reference import VisionReference

    folder = VisionReference("llava", tmp_path_factory.mktemp("models") / "llava").folder
    options = "--dtype float32 --device cpu --num-gpu-blocks 200 --num-threads 1 --lifetime linger"
    return f"%load_ext kernelserve\n%serve {folder} {options}"
