"""What `--image NAME` means: a variable of the notebook, or where a picture lies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelserve.errors import InvalidRequestError

__all__ = ["find_image"]


def find_image(name: str, names: Mapping[str, Any]) -> Any:
    """Return the variable of that name, else the path or URL itself. Raises InvalidRequestError if it is neither.

    A variable goes before a file of the same name. What is in it is judged when the request is made.
    """
    if name in names:
        return names[name]
    if name.startswith(("http://", "https://", "data:")):
        return name
    path = Path(name).expanduser()
    if path.is_file():
        return path
    raise InvalidRequestError(
        f"--image {name!r} is no variable of this notebook, no file in {Path.cwd()} and no URL"
    )
