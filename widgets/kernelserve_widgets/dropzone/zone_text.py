"""What a zone says of its pictures: to its page, to the saved notebook, to a front end without widgets."""

from __future__ import annotations

import io
import shlex
from collections.abc import Sequence
from typing import Any

from kernelserve_widgets.dropzone.picture import Picture
from kernelserve_widgets.views.cell_display import MimeBundle
from kernelserve_widgets.views.thumbnails import as_base64, contact_sheet

__all__ = ["picture_json", "static_bundle", "zone_line"]

_NO_WIDGETS = (
    "[no drop zone here: this front end shows no widgets. Use %%generate --image with a path, "
    "a URL or a variable]"
)
_EMPTY = "[a drop zone, empty: run the cell to drop pictures]"


def zone_line(pictures: Sequence[Picture]) -> str:
    """Return the options of %%generate that load the same pictures without the zone."""
    return " ".join(f"--image {shlex.quote(one.file)}" for one in pictures if one.file)


def picture_json(picture: Picture) -> dict[str, str]:
    """Return what the page shows of one picture."""
    mime, data = picture.thumbnail
    return {
        "name": picture.name,
        "text": picture.describe(),
        "file": picture.file,
        "line": zone_line([picture]),
        "thumbnail": f"data:{mime};base64,{as_base64(data)}",
    }


def static_bundle(pictures: Sequence[Picture], *, has_widgets: bool) -> MimeBundle:
    """Return (data, metadata) of the output: what readers without a kernel, or without widgets, see."""
    lines = [f"[{one.name}: {one.describe()}]  {zone_line([one])}".rstrip() for one in pictures]
    if not has_widgets:
        lines.append(_NO_WIDGETS)
    data: dict[str, Any] = {"text/plain": "\n".join(lines) or _EMPTY}
    if pictures:
        mime, sheet = contact_sheet([_opened(one) for one in pictures])
        data[mime] = as_base64(sheet)
    files = [one.file for one in pictures if one.file]
    return data, {"kernelserve": {"images": files}} if files else {}


def _opened(picture: Picture) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(picture.thumbnail[1])).convert("RGB")
