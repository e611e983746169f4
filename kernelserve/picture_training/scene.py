"""What a training picture shows, before anything is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

__all__ = ["COLOURS", "COUNT_WORDS", "DIGIT_WORDS", "SHAPES", "Scene", "Thing", "random_scene"]

SHAPES = ("circle", "square", "triangle", "rectangle", "star", "heart", "cross")
COLOURS = (
    "red",
    "green",
    "blue",
    "yellow",
    "orange",
    "purple",
    "pink",
    "brown",
    "gray",
    "black",
    "white",
)
COUNT_WORDS = ("zero", "one", "two", "three", "four", "five")
DIGIT_WORDS = tuple("0123456789")

_BACKGROUNDS = ("white",) * 7 + ("black", "gray", "yellow", "blue", "green", "pink", "orange")
# Colours that one would not tell from each other with certainty, as thing and background.
_TOO_CLOSE = frozenset(
    {
        frozenset(pair)
        for pair in (
            ("white", "yellow"),
            ("gray", "white"),
            ("gray", "black"),
            ("brown", "black"),
            ("pink", "purple"),
            ("orange", "yellow"),
            ("orange", "red"),
            ("pink", "red"),
            ("orange", "brown"),
            ("pink", "orange"),
            ("gray", "brown"),
            ("purple", "blue"),
        )
    }
)
_MAX_THINGS = 4
_MIN_SIZE = 0.16


@dataclass(frozen=True, slots=True)
class Thing:
    """A shape or a digit of one colour; lengths are fractions of the picture's side."""

    name: str
    """One of SHAPES or of DIGIT_WORDS."""
    colour: str
    x: float
    y: float
    size: float
    """Side of the square around it."""

    @property
    def is_digit(self) -> bool:
        """Whether it is a digit rather than a shape."""
        return self.name in DIGIT_WORDS

    @property
    def place(self) -> tuple[str, str]:
        """Row and column of nine fields: ("top", "left") to ("bottom", "right"), the middle is "center"."""
        return _third(self.y, ("top", "center", "bottom")), _third(
            self.x, ("left", "center", "right")
        )


@dataclass(frozen=True, slots=True)
class Scene:
    """Things on a background, in the order in which one reads: top to bottom, left to right."""

    background: str
    things: tuple[Thing, ...] = field(default=())

    @property
    def digit(self) -> Thing | None:
        """The digit, if there is one."""
        return next((thing for thing in self.things if thing.is_digit), None)


def random_scene(random: Random, most_things: int = _MAX_THINGS) -> Scene:
    """Draw by lot what to show: a digit, or one to four shapes, alike or not, none touching another."""
    background = random.choice(_BACKGROUNDS)
    if random.random() < (0.5 if most_things == 1 else 0.3):
        colour = _colour_on(background, random)
        size = random.uniform(0.3, 0.85)
        x, y = (random.uniform(size / 2, 1 - size / 2) for _ in "xy")
        return Scene(background, (Thing(random.choice(DIGIT_WORDS), colour, x, y, size),))
    count = min(most_things, random.choices((1, 2, 3, 4), (30, 25, 22, 23))[0])
    places = _places(count, random)
    alike = random.random() < 0.45
    name, colour = random.choice(SHAPES), _colour_on(background, random)
    things = []
    for x, y, size in places:
        if not alike:
            name, colour = random.choice(SHAPES), _colour_on(background, random)
        things.append(Thing(name, colour, x, y, size))
    rows = ("top", "center", "bottom")
    return Scene(
        background, tuple(sorted(things, key=lambda thing: (rows.index(thing.place[0]), thing.x)))
    )


def _places(count: int, random: Random) -> list[tuple[float, float, float]]:
    """Return x, y and size of `count` things that leave room between each other."""
    largest = {1: 0.82, 2: 0.45, 3: 0.38, 4: 0.34}[count]
    while True:
        places: list[tuple[float, float, float]] = []
        for _ in range(30):
            size = random.uniform(_MIN_SIZE, largest)
            x, y = (random.uniform(size / 2, 1 - size / 2) for _ in "xy")
            if all(
                max(abs(x - other[0]), abs(y - other[1])) > (size + other[2]) / 2 + 0.02
                for other in places
            ):
                places.append((x, y, size))
                if len(places) == count:
                    return places


def _colour_on(background: str, random: Random) -> str:
    while True:
        colour = random.choice(COLOURS)
        if colour != background and frozenset({colour, background}) not in _TOO_CLOSE:
            return colour


def _third(position: float, names: tuple[str, str, str]) -> str:
    return names[min(2, int(position * 3))]
