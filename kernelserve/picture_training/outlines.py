"""The outlines of shapes and the strokes of handwritten digits, in a square from -0.5 to 0.5, y downwards."""

from __future__ import annotations

import itertools
import math
from random import Random

import numpy as np
from numpy.typing import NDArray

__all__ = ["DIGIT_STROKES", "bend", "shape_outline"]

Points = NDArray[np.float64]

_POINTS_PER_SIDE = 8


def shape_outline(name: str, random: Random) -> Points:
    """Return the corners [n, 2] of a shape, close enough together to be bent."""
    if name == "circle":
        angles = np.linspace(0, 2 * math.pi, 48, endpoint=False)
        return 0.5 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    if name == "heart":
        angles = np.linspace(0, 2 * math.pi, 48, endpoint=False)
        x = 16 * np.sin(angles) ** 3
        y = -(
            13 * np.cos(angles)
            - 5 * np.cos(2 * angles)
            - 2 * np.cos(3 * angles)
            - np.cos(4 * angles)
        )
        return np.stack([x, y - 2.5], axis=1) / 33
    return _fill_in(_corners(name, random))


def _corners(name: str, random: Random) -> Points:
    if name == "square":
        half = 0.43
        return np.array([(-half, -half), (half, -half), (half, half), (-half, half)])
    if name == "rectangle":
        half = random.uniform(0.16, 0.26)
        if random.random() < 0.5:
            return np.array([(-0.5, -half), (0.5, -half), (0.5, half), (-0.5, half)])
        return np.array([(-half, -0.5), (half, -0.5), (half, 0.5), (-half, 0.5)])
    if name == "triangle":
        tip = random.choice((0.0, 0.0, 0.0, random.uniform(-0.45, 0.45)))
        corners = np.array([(tip, -0.45), (0.5, 0.42), (-0.5, 0.42)])
        return -corners if random.random() < 0.12 else corners
    if name == "star":
        inner = random.uniform(0.19, 0.27)
        radii = np.array([0.52, inner] * 5)
        angles = np.arange(10) * math.pi / 5 - math.pi / 2
        return np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=1)
    arm = random.uniform(0.09, 0.17)  # a cross
    corner = [(arm, arm), (arm, 0.5), (-arm, 0.5), (-arm, arm)]
    turns = [[(x, y), (-y, x), (-x, -y), (y, -x)] for x, y in corner]
    plus: Points = np.array([turns[i][turn] for turn in range(4) for i in range(4)])
    if random.random() < 0.35:  # an X
        plus = plus @ np.array([[0.7071, 0.7071], [-0.7071, 0.7071]])
    return plus


def _fill_in(corners: Points) -> Points:
    """Put points between the corners, so that a side can be bent."""
    steps = np.linspace(0, 1, _POINTS_PER_SIDE, endpoint=False)[:, None]
    following = np.roll(corners, -1, axis=0)
    sides = [start + (end - start) * steps for start, end in zip(corners, following, strict=True)]
    return np.concatenate(sides)


def bend(count: int, strength: float, random: Random) -> Points:
    """Return offsets [count, 2] that change slowly from point to point, as an unsteady hand moves."""
    steps = np.linspace(0, 2 * math.pi, count)
    offsets = np.zeros((count, 2))
    for frequency in (1, 2, 3, 5):
        for axis in range(2):
            height = random.gauss(0, strength / frequency**0.5)
            offsets[:, axis] += height * np.sin(frequency * steps + random.uniform(0, 2 * math.pi))
    return offsets


def _curve(*knots: tuple[float, float]) -> Points:
    """A smooth line through the knots (Catmull and Rom 1974)."""
    points = np.array([knots[0], *knots, knots[-1]], dtype=np.float64)
    t = np.linspace(0, 1, 6, endpoint=False)[:, None]
    pieces = []
    for before, start, end, after in zip(points, points[1:], points[2:], points[3:], strict=False):
        pieces.append(
            0.5
            * (
                2 * start
                + (end - before) * t
                + (2 * before - 5 * start + 4 * end - after) * t**2
                + (3 * start - before - 3 * end + after) * t**3
            )
        )
    return np.concatenate([*pieces, points[-1:]])


def _line(*corners: tuple[float, float]) -> Points:
    points = np.array(corners, dtype=np.float64)
    t = np.linspace(0, 1, 6, endpoint=False)[:, None]
    pieces = [start + (end - start) * t for start, end in itertools.pairwise(points)]
    return np.concatenate([*pieces, points[-1:]])


_RING = (
    (0, -0.5),
    (-0.26, -0.3),
    (-0.3, 0),
    (-0.24, 0.33),
    (0, 0.5),
    (0.26, 0.3),
    (0.3, 0),
    (0.24, -0.33),
)

DIGIT_STROKES: dict[str, tuple[tuple[Points, ...], ...]] = {
    "0": ((_curve(*_RING, (0.02, -0.5)),),),
    "1": (
        (_line((0, -0.5), (0, 0.5)),),
        (_line((-0.2, -0.28), (0.02, -0.5), (0.02, 0.5)),),
        (_line((-0.18, -0.3), (0, -0.5), (0, 0.5)), _line((-0.2, 0.5), (0.2, 0.5))),
    ),
    "2": (
        (
            _curve(
                (-0.27, -0.28),
                (-0.1, -0.48),
                (0.15, -0.46),
                (0.27, -0.25),
                (0.12, 0.05),
                (-0.3, 0.48),
            ),
            _line((-0.3, 0.48), (0.32, 0.48)),
        ),
    ),
    "3": (
        (
            _curve(
                (-0.27, -0.38),
                (-0.05, -0.5),
                (0.2, -0.42),
                (0.25, -0.22),
                (0.1, -0.05),
                (-0.08, -0.02),
            ),
            _curve(
                (-0.08, -0.02), (0.18, 0.04), (0.3, 0.23), (0.15, 0.45), (-0.08, 0.5), (-0.3, 0.36)
            ),
        ),
    ),
    "4": (
        (_line((0.14, 0.5), (0.14, -0.5), (-0.32, 0.18), (0.34, 0.18)),),
        (_line((-0.22, -0.5), (-0.28, 0.08), (0.3, 0.08)), _line((0.12, -0.42), (0.12, 0.5))),
    ),
    "5": (
        (
            _line((0.26, -0.48), (-0.2, -0.48), (-0.25, -0.06)),
            _curve((-0.25, -0.06), (0, -0.15), (0.25, 0), (0.28, 0.25), (0.08, 0.48), (-0.28, 0.4)),
        ),
    ),
    "6": (
        (
            _curve(
                (0.2, -0.47),
                (-0.08, -0.32),
                (-0.26, 0),
                (-0.27, 0.28),
                (-0.05, 0.5),
                (0.22, 0.38),
                (0.26, 0.15),
                (0.05, 0),
                (-0.2, 0.1),
                (-0.27, 0.25),
            ),
        ),
    ),
    "7": (
        (_line((-0.3, -0.48), (0.3, -0.48), (-0.08, 0.5)),),
        (_line((-0.3, -0.48), (0.3, -0.48), (-0.05, 0.5)), _line((-0.16, 0.02), (0.24, 0.02))),
    ),
    "8": (
        (
            _curve(
                (0, -0.03),
                (-0.22, -0.2),
                (-0.16, -0.44),
                (0.02, -0.5),
                (0.2, -0.4),
                (0.2, -0.2),
                (0, -0.03),
                (-0.26, 0.18),
                (-0.24, 0.42),
                (0, 0.5),
                (0.26, 0.4),
                (0.26, 0.17),
                (0, -0.03),
            ),
        ),
    ),
    "9": (
        (
            _curve(
                (0.25, -0.22),
                (0.05, -0.02),
                (-0.22, -0.12),
                (-0.26, -0.34),
                (-0.05, -0.5),
                (0.2, -0.42),
                (0.26, -0.22),
                (0.22, 0.15),
                (0.1, 0.5),
            ),
        ),
        (
            _curve(
                (0.25, -0.22),
                (0.05, -0.02),
                (-0.22, -0.12),
                (-0.26, -0.34),
                (-0.05, -0.5),
                (0.2, -0.42),
                (0.26, -0.22),
                (0.24, 0.1),
                (0.1, 0.4),
                (-0.2, 0.48),
            ),
        ),
    ),
}
"""Ways to write each digit, each some strokes [n, 2]."""
