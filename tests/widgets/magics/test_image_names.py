"""What `--image NAME` means: user-needs B9 without a model."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import pytest

import kernelserve as ks
from kernelserve_widgets.dropzone.drop_zones import DropZones
from kernelserve_widgets.magics import image_names, notebook_attachments
from kernelserve_widgets.magics.image_names import ImageNames
from tests.helpers.pictures import encode, random_picture, serve_bytes


class Shell:
    """A shell of a front end that shows no widgets, with nothing but variables."""

    def __init__(self, **variables) -> None:
        self.user_ns = variables


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    return tmp_path


def picture(seed: int = 0) -> bytes:
    return encode(random_picture(40, 30, seed))


def received(shell: Shell, *names: str, zones: DropZones | None = None):
    images = ImageNames(names, shell, zones or DropZones()).receive()
    return [(image.label, image.source) for image in images]


def fill(zones: DropZones, *seeds: int):
    zone = zones.of_cell()
    for seed in seeds:
        zone.add(picture(seed), f"{seed}.png", "", "one drop")
    return zone


def test_every_kind_of_name_in_order(folder) -> None:
    (folder / "a.png").write_bytes(picture())
    zones = DropZones()
    zone = fill(zones, 1, 2)
    data_url = f"data:image/png;base64,{base64.b64encode(picture(4)).decode()}"
    with serve_bytes({"/b.png": picture(3)}) as address:
        url = f"{address}/b.png"
        images = received(
            Shell(photo="anything", zone=zone),
            "a.png", "photo", url, "zone", data_url, "drop",
            zones=zones,
        )  # fmt: skip
    labels = [label for label, _ in images]
    files = [one.file for one in zone]
    assert labels == ["a.png", "photo", url, *files, "data URL", *files]
    sources = [source for _, source in images]
    assert sources[1] == "anything"
    assert sources[2] == ks.ImageReader().read(picture(3)), "fetched once"
    assert [sources[3], sources[4]] == [sources[6], sources[7]] == zone.images


def test_a_variable_goes_before_a_word_and_that_before_a_file(folder) -> None:
    for name in ("photo", "drop"):
        (folder / name).write_bytes(picture())
    assert received(Shell(photo=1, drop=2, attachment=3), "photo", "drop", "attachment") == [
        ("photo", 1), ("drop", 2), ("attachment", 3),
    ]  # fmt: skip
    with pytest.raises(ks.InvalidRequestError, match="nothing can be dropped here"):
        received(Shell(), "drop")


@pytest.mark.parametrize(
    "name", ["nothing", "~nobody-of-this-name/x.png", "a\x00b", "x" * 5000, ""]
)
def test_what_is_nothing_is_said_before_anybody_is_asked(name) -> None:
    with pytest.raises(ks.InvalidRequestError, match="is no variable of this notebook") as caught:
        ImageNames(["drop", name], Shell(), DropZones())
    assert len(str(caught.value)) < 400


def test_an_empty_zone_is_said() -> None:
    with pytest.raises(ks.InvalidRequestError, match="--image zone: the drop zone is empty"):
        received(Shell(zone=DropZones().open("photos")), "zone")


def test_without_widgets_drop_is_one_clear_error_unless_it_has_its_picture() -> None:
    with pytest.raises(
        ks.InvalidRequestError, match=r"--image clipboard: .* a path, a URL or a var"
    ):
        received(Shell(), "clipboard")
    zones = DropZones()
    fill(zones, 1)
    [(label, _)] = received(Shell(), "drop", zones=DropZones())
    assert label.startswith("images/"), "as after a restart, when nothing is left but the files"


def test_a_lost_picture_is_said_and_no_other_takes_its_place() -> None:
    zone = fill(DropZones(), 1, 2)
    (Path.cwd() / zone[0].file).unlink()
    for shell, name in ((Shell(), "drop"), (Shell(zone=DropZones().of_cell()), "zone")):
        with pytest.raises(
            ks.InvalidRequestError, match=r"lost a picture: .*No such file.*Drop it"
        ):
            received(shell, name, zones=DropZones())
    again = fill(DropZones(), 3)
    again.check()


def test_a_kernel_that_hears_nothing_while_it_runs_says_what_to_do(monkeypatch) -> None:
    shown = []
    zones = DropZones()
    monkeypatch.setattr(image_names, "choose_ui", lambda *_: "widget")
    monkeypatch.setattr(image_names, "buttons_work_while_awaiting", lambda: False)
    monkeypatch.setattr(zones.of_cell(), "show", lambda: shown.append(True))
    names = ImageNames(["drop"], Shell(), zones)
    with pytest.raises(
        ks.InvalidRequestError, match="drop the picture now, then run the cell again"
    ):
        asyncio.run(names.receive_async())
    assert shown, "there is a zone to drop it in"


def notebook(folder, *cells: dict[str, object], name: str = "my.ipynb") -> str:
    path = folder / name
    path.write_text(json.dumps({"cells": list(cells)}))
    return str(path)


def markdown(cell: str, **attachments: bytes) -> dict[str, object]:
    bundles = {
        name.replace("_", "."): {"image/png": base64.b64encode(data).decode()}
        for name, data in attachments.items()
    }
    text = "".join(f"![x](attachment:{name})\n" for name in reversed(list(bundles)))
    return {"id": cell, "cell_type": "markdown", "source": text, "attachments": bundles}


def test_attachments_come_from_the_nearest_cell_above_in_the_order_of_its_text(
    folder, monkeypatch
) -> None:
    path = notebook(
        folder,
        markdown("m1", far_png=picture(1)),
        markdown("m2", a_png=picture(2), b_png=picture(3)),
        {"id": "here", "cell_type": "code", "source": ""},
        markdown("m3", below_png=picture(4)),
    )
    monkeypatch.setenv("JPY_SESSION_NAME", path)
    monkeypatch.setattr(notebook_attachments, "cell_id", lambda _: "here")
    assert received(Shell(), "attachment") == [
        ("attachment:b.png", picture(3)), ("attachment:a.png", picture(2)),
    ]  # fmt: skip
    assert received(Shell(), "attachment:far.png") == [("attachment:far.png", picture(1))]
    monkeypatch.setattr(notebook_attachments, "cell_id", lambda _: None)
    assert received(Shell(), "attachment") == [("attachment:below.png", picture(4))]
    monkeypatch.delenv("JPY_SESSION_NAME")
    in_code = Shell(__vsc_ipynb_file__=path)
    assert received(in_code, "attachment:a.png") == [("attachment:a.png", picture(2))]


def test_attachments_that_are_not_there_are_said(folder, monkeypatch) -> None:
    with pytest.raises(ks.InvalidRequestError, match="does not tell the kernel where its notebook"):
        received(Shell(), "attachment")
    monkeypatch.setenv("JPY_SESSION_NAME", str(folder / "gone.ipynb"))
    with pytest.raises(ks.InvalidRequestError, match=r"there is no notebook .*gone\.ipynb"):
        received(Shell(), "attachment")
    path = notebook(folder, markdown("m1"))
    monkeypatch.setenv("JPY_SESSION_NAME", path)
    with pytest.raises(ks.InvalidRequestError, match=r"my\.ipynb as it was saved at .*Ctrl\+S"):
        received(Shell(), "attachment")
    (folder / "my.ipynb").write_text("{")
    with pytest.raises(ks.InvalidRequestError, match="cannot be read"):
        received(Shell(), "attachment")
