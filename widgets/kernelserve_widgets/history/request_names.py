"""Short names and colours by which people tell requests apart."""

from __future__ import annotations

import re

__all__ = ["REQUEST_COLOURS", "RequestNames"]

_INTERNAL_ID = re.compile(r"(?:(?P<index>\d+)_)?(?P<caller>.+)-[0-9a-f]{8}", re.DOTALL)
"""`<caller's id>-<random>`, after `<index>_` if the request asked for several answers."""

_MAX_LENGTH = 12
_MAX_NAMES = 8192

REQUEST_COLOURS = (
    (0, 114, 178),
    (230, 159, 0),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (213, 94, 0),
    (51, 34, 136),
    (153, 153, 51),
    (136, 34, 85),
    (68, 170, 153),
    (204, 102, 119),
    (102, 102, 102),
)
"""Apart for every common kind of colour blindness; neighbours in the order differ also in lightness."""


class RequestNames:
    """Gives each internal id one label and one colour, which it keeps.

        r7-1f2e3d4c                     r7      the caller's own id, if it is short
        0_r7-1f2e3d4c, 1_r7-1f2e3d4c    r7.0, r7.1
        63b1...c1f0-1f2e3d4c            q1      else by order of first appearance
        r7-99887766                     r7#2    another request under the same id

    Ids that do not look like internal ones are taken as they are. Remembers the last 8,192 ids.
    """

    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        self._colours: dict[str, tuple[int, int, int]] = {}
        self._families: dict[str, str] = {}
        """Internal id without the index -> label without the index."""
        self._uses: dict[str, int] = {}
        """How many families wanted this label."""
        self._num_colours = 0
        self._num_unnamed = 0

    def label(self, internal_id: str) -> str:
        """Return the short name of a request, the same at every call."""
        known = self._labels.get(internal_id)
        return known if known is not None else self._add(internal_id)

    def colour(self, internal_id: str) -> tuple[int, int, int]:
        """Return red, green and blue in 0..255: one of 12 colours, in turn."""
        if internal_id not in self._colours:
            self._add(internal_id)
        return self._colours[internal_id]

    def _add(self, internal_id: str) -> str:
        index, caller, family = _split(internal_id)
        base = self._families.get(family)
        if base is None:
            base = self._families[family] = self._base_label(caller)
        label = base if index is None else f"{base}.{index}"
        self._labels[internal_id] = label
        self._colours[internal_id] = REQUEST_COLOURS[self._num_colours % len(REQUEST_COLOURS)]
        self._num_colours += 1
        for names in (self._labels, self._colours, self._families, self._uses):
            if len(names) > _MAX_NAMES:
                del names[next(iter(names))]
        return label

    def _base_label(self, caller: str) -> str:
        label = caller
        if len(caller) > _MAX_LENGTH or not caller.isprintable() or not caller.strip():
            self._num_unnamed += 1
            label = f"q{self._num_unnamed}"
        uses = self._uses[label] = self._uses.get(label, 0) + 1
        return label if uses == 1 else f"{label}#{uses}"


def _split(internal_id: str) -> tuple[str | None, str, str]:
    """Return the index of the answer if there is one, the caller's id, and the id without the index."""
    match = _INTERNAL_ID.fullmatch(internal_id)
    if match is None:
        return None, internal_id, internal_id
    index = match["index"]
    family = internal_id if index is None else internal_id[len(index) + 1 :]
    return index, match["caller"], family
