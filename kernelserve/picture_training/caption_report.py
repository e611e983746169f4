"""How well captions are learned, in a line."""

from __future__ import annotations

from torch import Tensor

__all__ = ["CaptionReport"]

_PLACES = {
    "count": (0,),
    "colour": (2, 6, 10, 14),
    "name": (3, 7, 11, 15),
    "row": (4, 8, 12, 16),
    "column": (5, 9, 13, 17),
    "background": (20,),
}
_NOTHING = 0


class CaptionReport:
    """Shares of right words by what they tell, where there is something to tell, since it was made."""

    def __init__(self) -> None:
        self._losses: list[float] = []
        self._right = dict.fromkeys(_PLACES, 0)
        self._asked = dict.fromkeys(_PLACES, 0)

    def add(self, loss: float, matches: Tensor, targets: Tensor) -> None:
        """Count a batch: which words [B, 25] were right, and which they should be."""
        self._losses.append(loss)
        for name, places in _PLACES.items():
            said = targets[:, places] != _NOTHING
            self._right[name] += int((matches[:, places] & said).sum())
            self._asked[name] += int(said.sum())

    def line(self) -> str:
        """Return the mean loss and the shares."""
        shares = (f"{name} {self._right[name] / max(1, self._asked[name]):.3f}" for name in _PLACES)
        return f"loss {sum(self._losses) / len(self._losses):.3f}, right: {', '.join(shares)}"
