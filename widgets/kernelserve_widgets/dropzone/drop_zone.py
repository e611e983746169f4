"""A drop zone: the pictures that it holds, and the cell that shows it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import kernelserve as ks
from kernelserve_widgets.dropzone.drop_waits import DropWaits
from kernelserve_widgets.dropzone.picture import Picture, read_picture
from kernelserve_widgets.dropzone.picture_folder import PictureFolder
from kernelserve_widgets.dropzone.zone_limits import FindLimits
from kernelserve_widgets.dropzone.zone_text import picture_json, static_bundle, zone_line
from kernelserve_widgets.shell import choose_ui, current_shell, execution_count
from kernelserve_widgets.views.cell_display import CellDisplay

if TYPE_CHECKING:
    from kernelserve_widgets.dropzone.zone_widget import ZoneWidget

__all__ = ["DropZone"]


class DropZone:
    """What `ks.dropzone()` returns. Pictures come from any thread; they are in the order in which they came.

        zone.images         all pictures; each has data, name, mime, size, file and to_pil()
        zone.image          the last one
        await zone.next()   the next one that comes, in a cell of its own
        zone.clear()        empty it; the files stay

    Whatever takes an image takes the zone itself, for all its pictures: `llm.chat`, `llm.generate`, `--image zone`.
    The zone of a cell (`--image drop`) holds what was dropped last: a new drop takes the place of the one before.
    """

    def __init__(
        self, key: str, folder: PictureFolder, find_limits: FindLimits, *, of_cell: bool
    ) -> None:
        self._key = key
        self._folder = folder
        self._of_cell = of_cell
        self._find_limits = find_limits
        self._lock = threading.RLock()
        self._pictures, self._lost = folder.recall(key)
        self._problems: list[str] = []
        self._batch: list[Picture] = []
        self._batch_name: str | None = None
        self._waits = DropWaits()
        self._asking = ""
        self._is_brief = False
        self._widget: ZoneWidget | None = None
        self._shown_in: int | None = None
        self._is_stale = False
        """Whether the notebook keeps an output of other pictures."""

    # -- what a user has

    @property
    def images(self) -> list[Picture]:
        """All pictures in order."""
        with self._lock:
            return self._pictures.copy()

    @property
    def image(self) -> Picture:
        """The last picture. Raises InvalidRequestError while there is none."""
        return self._all()[-1]

    def clear(self) -> None:
        """Take all pictures out. Their files stay."""
        with self._lock:
            self._pictures.clear()
            self._lost.clear()
            self._problems.clear()
            self._changed()

    async def next(self) -> Picture:
        """Wait for the next picture. Raises InvalidRequestError if nobody can drop one here; an interrupt ends it."""
        return await self._waits.one()

    def __len__(self) -> int:
        return len(self._pictures)

    def __iter__(self) -> Iterator[Picture]:
        return iter(self.images)

    def __getitem__(self, index: int) -> Picture:
        return self.images[index]

    def __bool__(self) -> bool:
        return True  # an empty zone is a zone

    def __repr__(self) -> str:
        count = len(self._pictures)
        if not count:
            return "<DropZone: empty; drop, paste or choose a picture in it>"
        what = "1 picture" if count == 1 else f"{count} pictures"
        return f"<DropZone: {what}; {zone_line(self.images)}>"

    def _kernelserve_images_(self) -> list[Picture]:
        """What the zone stands for as an image: see `kernelserve.multimodal.image_holder`."""
        self.check()
        return self._all()

    def _ipython_display_(self) -> None:
        """As the value of the cell that made it, it is shown already."""
        if self._shown_in is None or self._shown_in != execution_count():
            self.show()

    def show(self) -> None:
        """Show it in the cell that runs now, too."""
        self._shown_in = execution_count()
        if choose_ui(current_shell()) != "widget":
            CellDisplay().show(*static_bundle(self.images, has_widgets=False))
            return
        from kernelserve_widgets.dropzone.zone_widget import ZoneWidget

        with self._lock:
            widget = self._widget = self._widget or ZoneWidget(self, self._find_limits)
            widget.place = CellDisplay()
            widget.place.show(*self._bundle(widget))
            self._is_stale = False

    # -- what the magics need

    def check(self) -> None:
        """Raise InvalidRequestError if a picture of the zone is lost: what is left would be another question."""
        with self._lock:
            if self._lost:
                raise ks.InvalidRequestError(f"the drop zone lost a picture: {self._lost[0]}")

    def ask(self, what: str) -> None:
        """Show it as a question: `drop` or `clipboard`."""
        with self._lock:
            self._asking, self._is_brief = what, False
            self._refresh()

    def fold(self) -> None:
        """Show one line of it: what it holds is shown elsewhere."""
        with self._lock:
            self._asking, self._is_brief = "", True
            self._refresh()
        self.renew_output()

    def renew_output(self) -> None:
        """Let the notebook keep what the zone holds now. Front ends show it anew, which disturbs whoever uses it."""
        with self._lock:
            if self._widget is not None and self._is_stale:
                self._is_stale = False
                self._widget.place.replace(*self._bundle(self._widget))

    def renew_limits(self) -> None:
        """Tell pages what they may send, if that has changed with the engine."""
        if self._widget is not None:
            self._widget.renew_limits()

    async def wait_for_drop(self) -> list[Picture]:
        """Wait for all pictures of the next drop. Raises as `next`."""
        return await self._waits.all()

    def wait_for_drop_blocking(self) -> list[Picture]:
        """The same where a cell cannot await; it works only where messages of widgets have a thread of their own."""
        return self._waits.all_blocking()

    # -- what the widget calls: see Zone

    def to_json(self) -> dict[str, Any]:
        """Everything that a page shows."""
        with self._lock:
            return {
                "pictures": [picture_json(one) for one in self._pictures],
                "line": zone_line(self._pictures),
                "problems": [*self._lost, *self._problems],
                "asking": self._asking,
                "brief": self._is_brief,
                "replaces": self._of_cell,
            }

    def add(self, data: bytes, name: str, note: str, batch: str) -> None:
        """Take a picture, and keep it beside the notebook. Raises InvalidRequestError if it is none."""
        picture = read_picture(data, name, note=note)
        with self._lock:
            is_new_batch = batch != self._batch_name
            limit = self._find_limits().max_pictures
            if len(self._pictures) >= limit and not self._of_cell:
                raise ks.InvalidRequestError(
                    f"the zone holds {len(self._pictures)} pictures, the limit is {limit}: take some out"
                )
            if is_new_batch:
                self._batch_name, self._batch = batch, []
                self._lost.clear()
                self._problems.clear()
            try:
                picture = self._folder.keep(picture)
            except ks.InvalidRequestError as error:
                self._problems.append(f"{name}: {error}")
            if is_new_batch and self._of_cell:
                self._pictures.clear()
                self._is_brief = False
            self._pictures.append(picture)
            self._batch.append(picture)
            self._changed()
        self._waits.landed(picture)

    def end_batch(self, batch: str | None) -> None:
        """Let go on who waits for the drop, if any picture of it was one."""
        with self._lock:
            if batch not in (None, self._batch_name):
                return
            pictures, self._batch = self._batch, []
        if pictures:
            self._waits.drop_ended(pictures)

    def remove(self, number: int) -> None:
        """Take one out."""
        with self._lock:
            if 0 <= number < len(self._pictures):
                del self._pictures[number]
                self._changed()

    def greet(self) -> None:
        """A page shows the zone; one that was reloaded will not end what it had begun."""
        self._waits.greet()
        self.end_batch(None)

    def end_wait(self) -> None:
        """End every wait, as an interrupt does."""
        self._waits.end()

    # -- the machinery

    def _all(self) -> list[Picture]:
        images = self.images
        if not images:
            raise ks.InvalidRequestError(
                "the drop zone is empty: drop, paste or choose a picture in it first"
            )
        return images

    def _bundle(self, widget: ZoneWidget) -> tuple[dict[str, Any], dict[str, Any]]:
        view, _ = widget._repr_mimebundle_() or ({}, {})
        data, metadata = static_bundle(self.images, has_widgets=True)
        return view | data, metadata

    def _changed(self) -> None:
        """Write down and show what the zone holds now."""
        self._folder.remember(self._key, self._pictures)
        self._is_stale = True
        self._refresh()

    def _refresh(self) -> None:
        if self._widget is not None:
            self._widget.refresh()
