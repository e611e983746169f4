"""Pictures beside the notebook: there once, whole, and never another one than was dropped."""

from __future__ import annotations

import pytest

from kernelserve import InvalidRequestError
from kernelserve_widgets.dropzone.picture import read_picture
from kernelserve_widgets.dropzone.picture_folder import PictureFolder
from tests.helpers.pictures import encode, random_picture


def picture(seed: int = 0, kind: str = "PNG"):
    return read_picture(encode(random_picture(40, 30, seed), kind), f"{seed}.{kind.lower()}")


def test_the_name_is_the_content(tmp_path) -> None:
    folder = PictureFolder(tmp_path)
    kept = [folder.keep(picture(seed)) for seed in (0, 1, 0)]
    assert kept[0].file == kept[2].file != kept[1].file
    assert kept[0].file.startswith("images/")
    assert kept[0].file.endswith(".png")
    assert folder.keep(picture(0, "JPEG")).file.endswith(".jpg")
    assert (tmp_path / kept[0].file).read_bytes() == kept[0].data
    assert sorted(path.suffix for path in (tmp_path / "images").iterdir()) == [
        ".jpg",
        ".png",
        ".png",
    ]


def test_a_picture_that_was_kept_before_is_not_written_again(tmp_path) -> None:
    folder = PictureFolder(tmp_path)
    path = tmp_path / folder.keep(picture()).file
    before = path.stat().st_ino
    folder.keep(picture())
    assert path.stat().st_ino == before
    path.write_bytes(b"cut off")
    folder.keep(picture())
    assert path.read_bytes() == picture().data, "what is there under the name is what it says"


def test_what_is_missing_or_was_changed_is_said_and_the_rest_is_there(tmp_path) -> None:
    folder = PictureFolder(tmp_path)
    kept = [folder.keep(picture(seed)) for seed in range(3)]
    folder.remember("photos", kept)
    (tmp_path / kept[0].file).unlink()
    (tmp_path / kept[1].file).write_bytes(picture(9).data)
    found, problems = folder.recall("photos")
    assert [one.data for one in found] == [kept[2].data]
    missing, changed = problems
    assert kept[0].file in missing
    assert "No such file" in missing
    assert "was changed since it was dropped" in changed
    assert all("Drop it again" in problem for problem in problems)


@pytest.mark.parametrize("text", ["", "[]", '{"pictures": [{}]}', '{"pictures": 3}', "\x00"])
def test_a_damaged_list_is_said(tmp_path, text) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "photos.json").write_text(text)
    found, [problem] = PictureFolder(tmp_path).recall("photos")
    assert found == []
    assert problem.startswith("images/photos.json cannot be read")


def test_a_list_leads_nowhere_else(tmp_path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(picture().data)
    (tmp_path / "images").mkdir()
    entry = '{"file": "../secret.png", "name": "x", "note": ""}'
    (tmp_path / "images" / "photos.json").write_text(f'{{"pictures": [{entry}]}}')
    found, [_] = PictureFolder(tmp_path).recall("photos")
    assert found == []


def test_an_empty_zone_leaves_no_list(tmp_path) -> None:
    folder = PictureFolder(tmp_path)
    folder.remember("photos", [])
    assert not (tmp_path / "images").exists()
    folder.remember("photos", [folder.keep(picture())])
    folder.remember("photos", [])
    assert folder.recall("photos") == ([], [])


def test_where_nothing_can_be_written_it_says_so(tmp_path) -> None:
    (tmp_path / "images").write_text("a file in the way")
    with pytest.raises(
        InvalidRequestError, match=r"cannot be kept in .*images: .*until the kernel ends"
    ):
        PictureFolder(tmp_path).keep(picture())


def test_cells_have_keys_that_are_names_of_files(tmp_path) -> None:
    key = PictureFolder.cell_key
    assert key("1a2b-3c") == "cell-1a2b-3c"
    strange = key("vscode-notebook-cell:/home/x/é.ipynb#W0s")
    assert strange.removeprefix("cell-").isalnum()
    assert strange != key("vscode-notebook-cell:/home/x/é.ipynb#W1s")
    folder = PictureFolder(tmp_path)
    assert folder.only_cell_key() is None
    folder.remember("cell-a", [folder.keep(picture())])
    assert folder.only_cell_key() == "cell-a"
    folder.remember("cell-b", [folder.keep(picture())])
    assert folder.only_cell_key() is None
