"""All drop zones of a notebook: one for each name, and one for each cell that has one without a name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernelserve as ks
from kernelserve_widgets.dropzone.drop_zone import DropZone
from kernelserve_widgets.dropzone.picture_folder import PictureFolder
from kernelserve_widgets.dropzone.zone_limits import ZoneLimits
from kernelserve_widgets.shell import cell_id, current_shell

__all__ = ["DropZones"]

_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,63}", re.ASCII)
_UNNAMED = "unnamed"


class DropZones:
    """Opening a zone again gives the same one: its pictures, and one comm however often its cell runs.

    What the notebook keeps of a zone is renewed when the next cell runs, not while somebody is busy in the zone.
    """

    def __init__(self, image_side: Callable[[], int] = lambda: 0) -> None:
        """`image_side` tells how large a picture the model makes use of that runs now: see `EngineReady`."""
        self._image_side = image_side
        self._zones: dict[tuple[Path, str], DropZone] = {}
        self._shell: Any = None

    def open(self, name: str | None = None) -> DropZone:
        """Return the zone of that name, or without a name the one of the cell that runs."""
        if name is None:
            return self._find(None, of_cell=False)
        if not _NAME.fullmatch(name) or name.startswith(("cell-", _UNNAMED)):
            raise ks.InvalidRequestError(
                f"a drop zone cannot have the name {name!r}: use up to 64 letters, digits, '_', '-' and '.', not "
                "beginning with cell- or unnamed"
            )
        return self._find(name, of_cell=False)

    def of_cell(self) -> DropZone:
        """Return the zone of a %%generate that runs: a new drop takes the place of the one before."""
        return self._find(None, of_cell=True)

    def _find(self, key: str | None, *, of_cell: bool) -> DropZone:
        place = Path.cwd()
        folder = PictureFolder(place)
        if key is None:
            cell = cell_id(current_shell())
            # Front ends that name no cells (nbclient) find the one zone that another front end has left.
            unknown = f"{_UNNAMED}-drop" if of_cell else _UNNAMED
            key = folder.cell_key(cell) if cell else folder.only_cell_key() or unknown
        zone = self._zones.get((place, key))
        if zone is None:
            self._follow(current_shell())
            zone = self._zones[place, key] = DropZone(key, folder, self._limits, of_cell=of_cell)
        return zone

    def _limits(self) -> ZoneLimits:
        return ZoneLimits(ks.ImageLimits()).for_model(self._image_side())

    def _follow(self, shell: Any) -> None:
        if shell is not None and self._shell is None:
            self._shell = shell
            shell.events.register("pre_run_cell", self._renew_outputs)
            shell.events.register("post_run_cell", self._renew_limits)

    def _renew_outputs(self, _: Any) -> None:
        for zone in self._zones.values():
            zone.renew_output()

    def _renew_limits(self, _: Any) -> None:
        for zone in self._zones.values():
            zone.renew_limits()
