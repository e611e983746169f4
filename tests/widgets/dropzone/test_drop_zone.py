"""The kernel's side of a drop zone: what arrives, what is refused, who waits for it."""

from __future__ import annotations

import asyncio
import json
import random

import numpy as np
import pytest
from PIL import Image

import kernelserve as ks
from kernelserve_widgets.dropzone import drop_waits
from kernelserve_widgets.dropzone.drop_zone import DropZone
from kernelserve_widgets.dropzone.drop_zones import DropZones
from tests.helpers.pictures import bad_pictures, encode, random_picture
from tests.helpers.zone_client import CHUNK, ZoneClient

VIEW_MIME = "application/vnd.jupyter.widget-view+json"


def page_of(notebook, number: int = -1) -> ZoneClient:
    """The page that shows the widget that was made last."""
    comm = notebook.comms[number]

    def send(content, buffers):
        data = {"method": "custom", "content": json.loads(json.dumps(content))}
        comm.handle_msg({"content": {"data": data}, "buffers": [memoryview(b) for b in buffers]})

    client = ZoneClient(send)
    client.hello()
    return client


def opened(notebook, name: str | None = "photos") -> tuple[DropZone, ZoneClient]:
    zone = DropZones().open(name)
    zone.show()
    return zone, page_of(notebook)


def pictures(count: int) -> list[bytes]:
    return [encode(random_picture(60, 40, seed)) for seed in range(count)]


def large_picture() -> bytes:
    """A PNG of several chunks."""
    noise = np.random.default_rng(0).integers(0, 256, (700, 900, 3), dtype=np.uint8)
    data = encode(Image.fromarray(noise))
    assert len(data) > 3 * CHUNK
    return data


def last_message(notebook, key: str):
    return [one for one in notebook.comms[-1].custom if key in one][-1]


def test_what_is_dropped_arrives_byte_for_byte_in_order(notebook) -> None:
    zone, page = opened(notebook)
    first, second, third = pictures(3)
    page.drop(first, second)
    page.drop(third)
    assert [image.data for image in zone.images] == [first, second, third]
    assert zone.image.data == third
    assert zone[0].size == (60, 40)
    assert zone[0].mime == "image/png"
    assert [image.to_pil().size for image in zone] == [(60, 40)] * 3
    assert ks.ImageReader().read(zone.image) == ks.ImageReader().read(third), "any route takes it"
    assert [(notebook.folder / image.file).read_bytes() for image in zone] == [first, second, third]


def test_the_zone_itself_is_an_image_where_it_holds_one(notebook) -> None:
    zone, page = opened(notebook)
    with pytest.raises(
        ks.InvalidRequestError, match="the drop zone is empty: drop, paste or choose"
    ):
        ks.ImageReader().read(zone)
    first, second = pictures(2)
    page.drop(first)
    assert ks.ImageReader().read(zone) == ks.ImageReader().read(first)
    page.drop(second)
    with pytest.raises(ks.InvalidRequestError, match="2 images where one is expected"):
        ks.ImageReader().read(zone)


def test_pages_are_told_how_large_a_picture_the_engine_makes_use_of(notebook) -> None:
    sides = [0]
    zone = DropZones(lambda: sides[-1]).open("photos")
    zone.show()
    page_of(notebook)
    [comm] = notebook.comms
    states = [comm.messages[0][1]["state"]["state"]]
    for side in (0, 1000, 1000, 160, 5000, 0):
        sides.append(side)
        notebook.run_a_cell()
    states += [message["state"] for message in comm.custom if "state" in message]
    assert [state["limits"]["shrunk_side"] for state in states] == [2048, 1000, 512, 2048]


def test_chunks_may_come_in_any_order_and_twice(notebook) -> None:
    zone, page = opened(notebook)
    data = large_picture()
    page.drop(data, order=lambda places: random.Random(1).sample(list(places), len(places)))
    key = page.begin(data)
    page.chunk(key, data, 0)
    page.chunk(key, data, 0)
    assert last_message(notebook, "got") == {"got": key, "bytes": CHUNK, "missing": []}
    page.tell("ask", upload=key)
    asked = last_message(notebook, "missing")
    assert asked["missing"] == list(range(CHUNK, len(data), CHUNK))
    for at in asked["missing"]:
        page.chunk(key, data, at)
    assert last_message(notebook, "landed") == {"landed": key}
    assert [image.data for image in zone] == [data, data]
    assert len({image.file for image in zone}) == 1, "the same content is kept once"
    assert max(notebook.comms[-1].sizes) < 100_000


def test_every_bad_picture_is_refused_in_one_line(notebook) -> None:
    zone, page = opened(notebook)
    for kind, data in bad_pictures().items():
        key = page.begin(data, f"{kind}.png")
        for at in range(0, len(data), CHUNK):
            page.chunk(key, data, at)
        refused = last_message(notebook, "refused")
        assert refused["refused"] == key, kind
        assert refused["text"].startswith(f"{kind}.png: the image"), kind
        assert "\n" not in refused["text"]
    assert zone.images == []
    good = pictures(1)
    page.drop(*good)
    assert [image.data for image in zone] == good


def test_a_broken_upload_is_said_and_the_next_one_works(notebook) -> None:
    zone, page = opened(notebook)
    data = large_picture()
    key = page.begin(data, "a.png")
    page.tell("ask", upload="never begun")
    assert last_message(notebook, "unknown") == {"unknown": "never begun"}
    page.chunk(key, data[:1000], 0)
    assert "interrupted" in last_message(notebook, "refused")["text"]
    page.chunk(key, data, CHUNK)  # on its way when it was refused
    page.drop(data)
    assert len(zone) == 1
    begun = [page.begin(data) for _ in range(6)]
    page.tell("ask", upload=begun[0])
    assert last_message(notebook, "unknown") == {"unknown": begun[0]}, "memory is bounded"
    page.tell("begin", upload="x", name="a.png", bytes="many", note="", batch="b")
    assert last_message(notebook, "refused")["refused"] == "x"


def test_a_zone_has_a_limit(notebook) -> None:
    zone, page = opened(notebook)
    page.drop(*pictures(33))
    assert len(zone) == 32
    assert "holds 32 pictures, the limit is 32" in last_message(notebook, "refused")["text"]


def test_pictures_can_be_taken_out(notebook) -> None:
    zone, page = opened(notebook)
    first, second, third = pictures(3)
    page.drop(first, second, third)
    page.tell("remove", number=1)
    page.tell("remove", number=7)
    assert [image.data for image in zone] == [first, third]
    assert len(last_message(notebook, "state")["state"]["pictures"]) == 2
    page.tell("clear")
    assert zone.images == []
    page.drop(second)
    zone.clear()
    assert last_message(notebook, "state")["state"]["pictures"] == []
    with pytest.raises(ks.InvalidRequestError, match="the drop zone is empty"):
        _ = zone.image


def test_the_same_pictures_after_a_restart(notebook) -> None:
    zone, page = opened(notebook)
    first, second = pictures(2)
    page.drop(first, second)
    before = [(image.data, image.name, image.file) for image in zone]
    again = notebook.restart().open("photos")
    assert [(image.data, image.name, image.file) for image in again] == before
    assert notebook.restart().open("others").images == []


def test_a_zone_without_a_name_belongs_to_its_cell(notebook) -> None:
    zones = DropZones()
    zone = zones.open()
    zone.show()
    page_of(notebook).drop(*pictures(1))
    assert zones.open() is zone
    notebook.cell = "another"
    assert zones.open() is not zone
    assert notebook.restart().open().images == []
    notebook.cell = "one"
    assert len(notebook.restart().open()) == 1
    notebook.cell = None  # a front end that does not say which cell runs
    assert len(notebook.restart().open()) == 1, "there is only one"
    with pytest.raises(ks.InvalidRequestError, match=r"cannot have the name '\.\./x'"):
        zones.open("../x")


def test_a_cell_s_own_zone_holds_the_last_drop(notebook) -> None:
    zone = DropZones().of_cell()
    zone.show()
    page = page_of(notebook)
    first, second, third = pictures(3)
    page.drop(first, second)
    assert [image.data for image in zone] == [first, second]
    page.drop(third)
    assert [image.data for image in zone] == [third]


def test_one_comm_however_often_it_is_shown(notebook) -> None:
    zones = DropZones()
    for _ in range(5):
        zones.open("photos").show()
    assert len(notebook.comms) == 1
    assert len({one["data"][VIEW_MIME]["model_id"] for one in notebook.shown}) == 1


def test_the_notebook_keeps_what_the_zone_holds_when_the_next_cell_runs(notebook) -> None:
    zone, page = opened(notebook)
    assert "empty" in notebook.shown[-1]["data"]["text/plain"]
    page.drop(*pictures(2))
    assert len(notebook.shown) == 1, "whoever is busy in the zone is not disturbed"
    notebook.run_a_cell()
    notebook.run_a_cell()
    [_, kept] = notebook.shown
    assert kept["update"]
    assert kept["id"] == notebook.shown[0]["id"]
    for image in zone:
        assert f"--image {image.file}" in kept["data"]["text/plain"]
    assert kept["metadata"]["kernelserve"] == {"images": [image.file for image in zone]}
    pixels = [data for mime, data in kept["data"].items() if mime.startswith("image/")]
    assert len(pixels) == 1
    assert len(pixels[0]) < 20_000
    assert f"--image {zone[0].file}" in repr(zone)


def test_without_widgets_it_says_what_to_do(notebook) -> None:
    notebook.ui = "plain"
    zone = DropZones().open("photos")
    zone.show()
    assert notebook.comms == []
    [shown] = notebook.shown
    assert "this front end shows no widgets" in shown["data"]["text/plain"]
    assert "a path, a URL or a variable" in shown["data"]["text/plain"]
    assert "empty" in repr(zone)


def test_who_waits_gets_the_next_picture_or_the_whole_drop(notebook) -> None:
    zone, page = opened(notebook)
    first, second, third = pictures(3)
    page.drop(first)

    async def wait():
        one, drop = asyncio.create_task(zone.next()), asyncio.create_task(zone.wait_for_drop())
        await asyncio.sleep(0)
        key = page.begin(second, batch="x")
        page.chunk(key, second, 0)
        got = await one
        assert not drop.done(), "more of it may come"
        key = page.begin(third, batch="x")
        page.chunk(key, third, 0)
        page.tell("end", batch="x")
        return got, await drop

    got, drop = asyncio.run(wait())
    assert got.data == second
    assert [image.data for image in drop] == [second, third]


def test_a_page_that_was_reloaded_lets_go_on_who_waits(notebook) -> None:
    zone, page = opened(notebook)
    [data] = pictures(1)

    async def wait():
        drop = asyncio.create_task(zone.wait_for_drop())
        await asyncio.sleep(0)
        key = page.begin(data, batch="never ends")
        page.chunk(key, data, 0)
        page.hello()
        return await drop

    assert [image.data for image in asyncio.run(wait())] == [data]


def test_a_wait_ends_when_it_is_cancelled_or_nobody_is_there(notebook, monkeypatch) -> None:
    zone, page = opened(notebook)

    async def cancel():
        waiting = asyncio.create_task(zone.next())
        await asyncio.sleep(0)
        page.tell("cancel")
        await waiting

    with pytest.raises(KeyboardInterrupt, match="the wait for a picture was ended"):
        asyncio.run(cancel())
    monkeypatch.setattr(drop_waits, "_GREETING_S", 0.05)
    lonely = DropZones().open("lonely")
    lonely.show()
    with pytest.raises(ks.InvalidRequestError, match="no page answered"):
        asyncio.run(lonely.next())
    with pytest.raises(ks.InvalidRequestError, match="no page answered"):
        lonely.wait_for_drop_blocking()
