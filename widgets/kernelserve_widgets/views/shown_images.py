"""What stays in the notebook of the images that a model saw: small pictures of them above the answer."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import kernelserve as ks
from kernelserve_widgets.views.cell_display import CellDisplay, MimeBundle
from kernelserve_widgets.views.thumbnails import as_base64, contact_sheet, shrink

__all__ = ["NamedImage", "image_bundle", "show_images"]

_MAX_SHOWN = 24


@dataclass(frozen=True, slots=True, eq=False)
class NamedImage:
    """An image of a request."""

    label: str
    """The `--image` that gives it again."""
    source: Any
    """Whatever `kernelserve.ImageReader` reads."""


def show_images(images: Sequence[NamedImage]) -> None:
    """Show them in the cell that runs now. The output never changes, so the saved notebook has it too."""
    if images:
        CellDisplay().show(*image_bundle(images))


def image_bundle(images: Sequence[NamedImage]) -> MimeBundle:
    """Return (data, metadata): one picture with all of them, as any reader shows it, and how to load them."""
    small = []
    for image in images[:_MAX_SHOWN]:
        try:
            small.append(shrink(ks.ImageReader().read(image.source)))
        except ks.KernelserveError:
            continue  # the model has it already; what it was read from has gone
    lines = " ".join(f"--image {shlex.quote(image.label)}" for image in images)
    data: dict[str, Any] = {"text/plain": f"[{lines}]"}
    if small:
        mime, sheet = contact_sheet(small)
        data[mime] = as_base64(sheet)
    return data, {"kernelserve": {"images": [image.label for image in images]}}
