"""The colours of the dashboard by number: what is painted without matplotlib is painted in these."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import numpy.typing as npt

from kernelserve_widgets.drawing.theme import Colour, Theme
from kernelserve_widgets.history.request_names import REQUEST_COLOURS

__all__ = ["Inks"]

RGB = tuple[int, int, int]


class Inks:
    """Those of a theme and those of requests. An ink is the place of a colour in `colours`, and fits into a byte."""

    def __init__(self, theme: Theme) -> None:
        themed = [rgb(colour) for colour in astuple(theme)]
        every = list(dict.fromkeys([*themed, *REQUEST_COLOURS]))
        self.colours: npt.NDArray[np.uint8] = np.array(every, np.uint8)
        """Red, green and blue of each ink, [inks, 3]."""
        self._numbers = {colour: number for number, colour in enumerate(every)}

    def of(self, colour: Colour | RGB) -> int:
        """Return the ink of a colour of the theme or of a request."""
        return self._numbers[rgb(colour) if isinstance(colour, str) else colour]


def rgb(colour: Colour) -> RGB:
    """Return red, green and blue in 0..255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
