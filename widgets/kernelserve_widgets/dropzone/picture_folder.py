"""Keeps dropped pictures beside the notebook: each once, under the hash of its content, and what each zone holds."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import kernelserve as ks
from kernelserve_widgets.dropzone.picture import Picture, read_picture

__all__ = ["PictureFolder"]

_FOLDER = "images"
_HASH_BYTES = 8
_VERSION = 1
_CELL = "cell-"


class PictureFolder:
    """The folder `images` of a notebook's folder.

        images/3f2a9c0d1b7e4a55.png     a picture; never changed, never deleted here
        images/photos.json              what the zone "photos" holds, in order
        images/cell-1a2b3c4d.json       the same for a zone without a name, by the cell that it belongs to

    Every file appears whole or not at all. Two notebooks may share the folder.
    """

    def __init__(self, notebook_folder: Path) -> None:
        self.notebook_folder = notebook_folder
        self._folder = notebook_folder / _FOLDER

    def keep(self, picture: Picture) -> Picture:
        """Return the picture with the name of its file, which exists afterwards. Raises InvalidRequestError."""
        name = f"{_hash(picture.data)}.{picture.suffix}"
        path = self._folder / name
        try:
            if not path.is_file() or path.read_bytes() != picture.data:
                self._write(path, picture.data)
        except OSError as error:
            raise ks.InvalidRequestError(
                f"it cannot be kept in {self._folder}: {error.strerror or error}. It is here until the kernel ends; "
                "run the notebook where it may write"
            ) from error
        return replace(picture, file=f"{_FOLDER}/{name}")

    def remember(self, key: str, pictures: Sequence[Picture]) -> None:
        """Write down what a zone holds, so that `recall` gives the same after a restart."""
        kept = [
            {"file": Path(one.file).name, "name": one.name, "note": one.note}
            for one in pictures
            if one.file
        ]
        path = self._list_of(key)
        with contextlib.suppress(OSError):  # `keep` has said so
            if kept:
                text = json.dumps({"version": _VERSION, "pictures": kept}, indent=1)
                self._write(path, f"{text}\n".encode())
            else:
                path.unlink(missing_ok=True)

    def recall(self, key: str) -> tuple[list[Picture], list[str]]:
        """Return the pictures of a zone, and a line for each that is missing or was changed."""
        path = self._list_of(key)
        if not path.is_file():
            return [], []
        try:
            entries = json.loads(path.read_text(encoding="utf-8"))["pictures"]
            files = [(entry["file"], entry["name"], entry["note"]) for entry in entries]
        except (OSError, ValueError, LookupError, TypeError) as error:
            return [], [f"{self._shown(path)} cannot be read ({error}): delete it and drop anew"]
        pictures, problems = [], []
        for file, name, note in files:
            try:
                pictures.append(self._load(str(file), str(name), str(note)))
            except (OSError, ks.InvalidRequestError) as error:
                problems.append(f"{_FOLDER}/{file}, {name}: {_reason(error)}. Drop it again")
        return pictures, problems

    def only_cell_key(self) -> str | None:
        """Return the key of the zone without a name, if there is exactly one: for front ends that name no cells."""
        found = sorted(self._folder.glob(f"{_CELL}*.json"))
        return found[0].stem if len(found) == 1 else None

    @staticmethod
    def cell_key(cell: str) -> str:
        """Return the key of the zone of a cell, by the front end's id of the cell."""
        plain = cell.isascii() and cell.replace("-", "").isalnum() and len(cell) <= 64
        return _CELL + (cell if plain else _hash(cell.encode()))

    def _load(self, file: str, name: str, note: str) -> Picture:
        path = self._folder / Path(file).name  # a list never leads out of the folder
        data = path.read_bytes()
        if _hash(data) != path.stem:
            raise ks.InvalidRequestError("the file was changed since it was dropped")
        return read_picture(data, name, note=note, file=f"{_FOLDER}/{path.name}")

    def _write(self, path: Path, data: bytes) -> None:
        self._folder.mkdir(exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=path.suffix, dir=self._folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def _list_of(self, key: str) -> Path:
        return self._folder / f"{key}.json"

    def _shown(self, path: Path) -> str:
        return str(path.relative_to(self.notebook_folder))


def _hash(data: bytes) -> str:
    from blake3 import blake3

    digest: str = blake3(data).hexdigest(length=_HASH_BYTES)
    return digest


def _reason(error: Any) -> str:
    return str(getattr(error, "strerror", None) or error)
