"""What `--image NAME` means: a variable, a drop zone, the zone of the cell, an attachment, a path or a URL."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import kernelserve as ks
from kernelserve.errors import InvalidRequestError
from kernelserve_widgets.dropzone.drop_zone import DropZone
from kernelserve_widgets.dropzone.drop_zones import DropZones
from kernelserve_widgets.dropzone.picture import Picture
from kernelserve_widgets.magics.notebook_attachments import find_attachments
from kernelserve_widgets.shell import buttons_work_while_awaiting, choose_ui
from kernelserve_widgets.views.shown_images import NamedImage

__all__ = ["IMAGE_WORDS", "ImageNames"]

IMAGE_WORDS = ("attachment", "clipboard", "drop")
"""Names with a meaning of their own, where no variable has them."""
_FROM_CELL = ("clipboard", "drop")
_MAX_LABEL_CHARS = 80
_ENDED = "the wait for a picture was ended"


class ImageNames:
    """The `--image` options of one cell, in order. A variable goes before a word of our own, and that before a file.

    `drop` and `clipboard` are the zone of the cell: what it holds, or else what comes while the cell waits. What is in
    a variable or a file is judged when the request is made.
    """

    def __init__(
        self, names: Sequence[str], shell: Any, zones: DropZones, *, ui: str = "auto"
    ) -> None:
        """`ui` is how the notebook shows things: see `choose_ui`.

        Raises InvalidRequestError for a name that means nothing, before anybody is asked for anything.
        """
        self._shell = shell
        self._zones = zones
        self._ui = ui
        self._entries = [_find(name, shell) for name in names]
        self._question = next((one for one in self._entries if isinstance(one, str)), "")

    def receive(self) -> list[NamedImage]:
        """Return the images; where one must come first, block until it is there.

        Raises InvalidRequestError if none can come, KeyboardInterrupt if the wait was ended.
        """
        zone = self._ask()
        if zone is not None:
            try:
                zone.wait_for_drop_blocking()
            except KeyboardInterrupt:
                raise KeyboardInterrupt(_ENDED) from None
            finally:
                zone.ask("")
        return self._all()

    async def receive_async(self) -> list[NamedImage]:
        """The same in an awaiting cell, which the page reaches meanwhile."""
        zone = self._ask()
        if zone is not None:
            try:
                await zone.wait_for_drop()
            except (asyncio.CancelledError, KeyboardInterrupt):
                raise KeyboardInterrupt(_ENDED) from None
            finally:
                zone.ask("")
        return self._all()

    def _ask(self) -> DropZone | None:
        """Show the zone of the cell if there is one. Returns it if a picture must come first."""
        if not self._question:
            return None
        zone = self._zones.of_cell()
        can_show = choose_ui(self._shell, self._ui) == "widget"
        if self._is_filled(zone, can_show=can_show):
            return None
        if not can_show:
            raise InvalidRequestError(
                f"--image {self._question}: nothing can be dropped here, as this front end shows no widgets: use a "
                "path, a URL or a variable"
            )
        if not buttons_work_while_awaiting():
            zone.show()
            raise InvalidRequestError(
                f"--image {self._question}: this kernel hears a drop zone only between cells (ipykernel 7.4 hears it "
                "at once): drop the picture now, then run the cell again"
            )
        zone.ask(self._question)
        zone.show()
        return zone

    @staticmethod
    def _is_filled(zone: DropZone, *, can_show: bool) -> bool:
        """Whether the zone has pictures; then it is shown in one line. Raises InvalidRequestError if one is lost."""
        try:
            zone.check()
        except InvalidRequestError:
            if can_show:
                zone.show()  # with the reason, and a place for another one
            raise
        if not zone.images:
            return False
        zone.fold()
        if can_show:
            zone.show()
        return True

    def _all(self) -> list[NamedImage]:
        zone = self._zones.of_cell() if self._question else None
        if zone is not None:
            zone.fold()
        images: list[NamedImage] = []
        for entry in self._entries:
            if isinstance(entry, str):
                assert zone is not None, "the question is asked"
                images += _named(zone.images)
            else:
                images += entry
        return images


def _find(name: str, shell: Any) -> list[NamedImage] | str:
    """Return the images of a name; the name itself if they are in the zone of the cell."""
    variables: Mapping[str, Any] = shell.user_ns
    if name in variables:
        value = variables[name]
        if not isinstance(value, DropZone):
            return [NamedImage(name, value)]
        try:
            return _named(value._kernelserve_images_())
        except InvalidRequestError as error:
            raise InvalidRequestError(f"--image {name}: {error}") from None
    if name in _FROM_CELL:
        return name
    word, _, which = name.partition(":")
    if word == "attachment":
        return find_attachments(which, shell)
    if name.startswith("data:"):
        return [NamedImage("data URL", name)]
    if name.startswith(("http://", "https://")):
        # Fetched once, here: what is shown beside the answer is what the model saw.
        return [NamedImage(name[:_MAX_LABEL_CHARS], ks.ImageReader().read(name))]
    return [NamedImage(name, _existing(name))]


def _existing(name: str) -> Path:
    with contextlib.suppress(OSError, RuntimeError, ValueError):  # of what cannot be a path
        path = Path(name).expanduser()
        if path.is_file():
            return path
    raise InvalidRequestError(
        f"--image {name[:_MAX_LABEL_CHARS]!r} is no variable of this notebook, no file in {Path.cwd()} and no URL"
    )


def _named(pictures: Sequence[Picture]) -> list[NamedImage]:
    return [NamedImage(picture.file or picture.name, picture) for picture in pictures]
