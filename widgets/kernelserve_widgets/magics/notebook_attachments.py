"""Pictures that were dropped on Markdown cells. No message tells a kernel of them: the saved notebook does."""

from __future__ import annotations

import base64
import binascii
import json
import os
import time
import urllib.parse
from pathlib import Path
from typing import Any

from kernelserve.errors import InvalidRequestError
from kernelserve_widgets.shell import cell_id
from kernelserve_widgets.views.shown_images import NamedImage

__all__ = ["find_attachments"]

_SAVE = "drop the picture on a Markdown cell above this one and save the notebook (Ctrl+S)"


def find_attachments(name: str, shell: Any) -> list[NamedImage]:
    """Return the pictures attached to the nearest cell above the one that runs; with a name, only that picture.

    Raises InvalidRequestError if the notebook cannot be read or has none.
    """
    option = f"--image attachment{f':{name}' if name else ''}"
    path = _notebook_path(option, shell)
    cells = _read_cells(option, path)
    here = cell_id(shell)
    place = next((i for i, cell in enumerate(cells) if cell.get("id") == here), len(cells))
    for cell in reversed(cells[: place + 1]):
        found = _pictures_of(cell, name)
        if found:
            return found
    saved = time.strftime("%H:%M:%S", time.localtime(path.stat().st_mtime))
    raise InvalidRequestError(
        f"{option}: no cell above has such a picture in {path.name} as it was saved at {saved}: {_SAVE}"
    )


def _notebook_path(option: str, shell: Any) -> Path:
    """Where the front end says that the notebook is: Jupyter's server in the environment, VS Code in a variable."""
    known = shell.user_ns.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME") or ""
    path = Path(str(known))
    if path.suffix != ".ipynb":
        raise InvalidRequestError(
            f"{option}: this front end does not tell the kernel where its notebook is saved: use --image drop, a path "
            "or a variable"
        )
    if not path.is_file():
        raise InvalidRequestError(
            f"{option}: there is no notebook {path} (any more): restart the kernel after renaming, or use --image drop"
        )
    return path


def _read_cells(option: str, path: Path) -> list[dict[str, Any]]:
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return [cell for cell in cells if isinstance(cell, dict)]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InvalidRequestError(
            f"{option}: the notebook {path} cannot be read ({error}): {_SAVE}"
        ) from error


def _pictures_of(cell: dict[str, Any], wanted: str) -> list[NamedImage]:
    """Return the pictures of a cell in the order of its text; files keep them in the order of their names."""
    source = cell.get("source", "")
    text = "".join(source) if isinstance(source, list) else str(source)
    found = []
    for name, bundle in (cell.get("attachments") or {}).items():
        if wanted not in ("", name, urllib.parse.unquote(name)):
            continue
        data = _image_data(bundle)
        if data is not None:
            at = text.find(f"attachment:{urllib.parse.quote(name)}")
            found.append((at if at >= 0 else len(text), NamedImage(f"attachment:{name}", data)))
    return [image for _, image in sorted(found, key=lambda entry: entry[0])]


def _image_data(bundle: Any) -> bytes | None:
    for mime, data in bundle.items() if isinstance(bundle, dict) else ():
        if mime.startswith("image/"):
            try:
                return base64.b64decode("".join(data))
            except (binascii.Error, TypeError, ValueError):
                return None
    return None
