"""Paints a scene as people and plotting libraries do: filled or outlined, clean or by an unsteady hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from kernelserve.picture_training.outlines import DIGIT_STROKES, Points, bend, shape_outline
from kernelserve.picture_training.scene import Scene, Thing

__all__ = ["PADDING", "Painter"]

Rgb = tuple[int, int, int]

# What people call by these names: pure, plotting and paint-program colours.
_PALETTE: dict[str, tuple[Rgb, ...]] = {
    "red": ((255, 0, 0), (214, 39, 40), (200, 20, 30), (230, 50, 50)),
    "green": ((0, 128, 0), (44, 160, 44), (0, 255, 0), (60, 180, 75), (30, 110, 40)),
    "blue": ((0, 0, 255), (31, 119, 180), (30, 60, 200), (65, 105, 225), (70, 150, 240)),
    "yellow": ((255, 255, 0), (250, 220, 40), (255, 225, 25)),
    "orange": ((255, 165, 0), (255, 127, 14), (245, 130, 48), (255, 140, 0)),
    "purple": ((128, 0, 128), (148, 103, 189), (110, 40, 160), (145, 30, 180)),
    "pink": ((255, 192, 203), (255, 105, 180), (227, 119, 194), (250, 150, 190)),
    "brown": ((139, 69, 19), (140, 86, 75), (120, 72, 30), (101, 60, 30)),
    "gray": ((128, 128, 128), (127, 127, 127), (160, 160, 160), (105, 105, 105)),
    "black": ((0, 0, 0), (25, 25, 25), (10, 10, 20)),
    "white": ((255, 255, 255), (245, 245, 245), (250, 250, 240)),
}
_FONTS = (
    *(f"DejaVuSans{kind}.ttf" for kind in ("", "-Bold", "-Oblique", "Mono", "Mono-Bold")),
    *(f"DejaVuSerif{kind}.ttf" for kind in ("", "-Bold", "-Italic")),
    *(f"STIXGeneral{kind}.ttf" for kind in ("", "Bol", "Italic")),
    *(f"cm{kind}10.ttf" for kind in ("r", "b", "ss", "tt")),
)
_OVERSAMPLING = 2
PADDING = (127, 127, 127)
"""What `LlavaImageProcessor` puts around a picture that is no square, at a mean of 0.5."""


@dataclass(frozen=True, slots=True)
class _Style:
    """How a thing is drawn; lengths are fractions of the picture's side."""

    filled: bool
    wobble: float
    stroke: float
    has_border: bool

    @classmethod
    def by_lot(cls, random: Random) -> _Style:
        filled = random.random() < 0.6
        unsteady = random.random() < 0.5
        wobble = random.uniform(0.01, 0.045) if unsteady else 0.0
        stroke = random.uniform(0.012, 0.055)
        return cls(filled, wobble, stroke, filled and random.random() < 0.2)


class Painter:
    """Makes pictures [side, side, 3] of uint8, each different, all of them decided by `random`."""

    def __init__(self, side: int, fonts: Path) -> None:
        self._side = side
        self._canvas = side * _OVERSAMPLING
        self._fonts = [
            ImageFont.truetype(str(fonts / name), self._canvas)
            for name in _FONTS
            if (fonts / name).is_file()
        ]

    def paint(self, scene: Scene, random: Random) -> Image.Image:
        """Paint the scene; strokes, colours, noise and margins by lot."""
        paper = _shade(scene.background, random, 6 if scene.background == "white" else 14)
        image = Image.new("RGB", (self._canvas, self._canvas), paper)
        draw = ImageDraw.Draw(image)
        if random.random() < 0.08:
            self._axes(draw, paper, random)
        style = _Style.by_lot(random)
        for thing in scene.things:
            if random.random() < 0.15:
                style = _Style.by_lot(random)
            colour = _shade(thing.colour, random, 12)
            if thing.is_digit:
                self._digit(image, thing, colour, style, random)
            else:
                self._shape(draw, thing, colour, style, random)
        return self._finish(image, random)

    def _shape(
        self,
        draw: ImageDraw.ImageDraw,
        thing: Thing,
        colour: Rgb,
        style: _Style,
        random: Random,
    ) -> None:
        outline = shape_outline(thing.name, random)
        points = self._place(outline, thing, style.wobble, random)
        if style.filled:
            draw.polygon(points, fill=colour)
            if style.has_border:
                self._stroke(draw, [*points, points[0]], (20, 20, 20), style.stroke / 2)
            return
        # An unsteady hand does not end where it began.
        self._stroke(draw, [*points, *points[:2]], colour, min(style.stroke, thing.size / 5))

    def _digit(
        self, image: Image.Image, thing: Thing, colour: Rgb, style: _Style, random: Random
    ) -> None:
        if random.random() < 0.5:
            draw = ImageDraw.Draw(image)
            width = max(0.02, style.stroke * (0.5 + thing.size))
            for stroke in random.choice(DIGIT_STROKES[thing.name]):
                points = self._place(stroke, thing, style.wobble / 2 + 0.006, random, turn=0.0)
                self._stroke(draw, points, colour, width)
            return
        font = random.choice(self._fonts)
        left, top, right, bottom = font.getbbox(thing.name)
        mask = Image.new("L", (int(right - left), int(bottom - top)), 0)
        ImageDraw.Draw(mask).text((-left, -top), thing.name, font=font, fill=255)
        mask = mask.rotate(random.uniform(-12, 12), expand=True, resample=Image.Resampling.BILINEAR)
        height = max(8, int(thing.size * self._canvas))
        width_px = max(4, int(height * mask.width / mask.height * random.uniform(0.85, 1.2)))
        mask = mask.resize((width_px, height), Image.Resampling.BILINEAR)
        corner = (
            int(thing.x * self._canvas - width_px / 2),
            int(thing.y * self._canvas - height / 2),
        )
        image.paste(colour, (*corner, corner[0] + width_px, corner[1] + height), mask)

    def _place(
        self,
        outline: Points,
        thing: Thing,
        wobble: float,
        random: Random,
        turn: float | None = None,
    ) -> list[tuple[float, float]]:
        """Scale an outline of -0.5 .. 0.5 to the thing's square, turned and bent a little."""
        points = np.asarray(outline, dtype=np.float64)
        if wobble:
            points = points + bend(len(points), wobble, random)
        angle = math.radians(random.uniform(-12, 12) if turn is None else turn)
        turned = points @ np.array(
            [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
        )
        centre = np.array([thing.x, thing.y])
        return [(float(x), float(y)) for x, y in (turned * thing.size + centre) * self._canvas]

    def _stroke(
        self,
        draw: ImageDraw.ImageDraw,
        points: list[tuple[float, float]],
        colour: Rgb,
        width: float,
    ) -> None:
        pixels = max(2, round(width * self._canvas))
        draw.line(points, fill=colour, width=pixels, joint="curve")
        radius = pixels / 2
        for x, y in (points[0], points[-1]):
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)

    def _axes(self, draw: ImageDraw.ImageDraw, paper: Rgb, random: Random) -> None:
        """The frame and the ticks of a plot, which are not among the things."""
        ink = (30, 30, 30) if sum(paper) > 380 else (225, 225, 225)
        low, high = random.uniform(0.02, 0.1), random.uniform(0.9, 0.98)
        box = [low * self._canvas, low * self._canvas, high * self._canvas, high * self._canvas]
        draw.rectangle(box, outline=ink, width=2)
        for step in np.linspace(low, high, random.randint(4, 8))[1:-1] * self._canvas:
            draw.line((step, box[3], step, box[3] + 6), fill=ink, width=2)
            draw.line((box[0] - 6, step, box[0], step), fill=ink, width=2)

    def _finish(self, image: Image.Image, random: Random) -> Image.Image:
        if random.random() < 0.15:  # the processor puts a picture that is no square on gray
            image = self._letterbox(image, random)
        image = image.reduce(_OVERSAMPLING)
        if random.random() < 0.12:
            image = image.filter(ImageFilter.GaussianBlur(random.uniform(0.4, 1.0)))
        if random.random() < 0.2:
            generator = np.random.default_rng(random.getrandbits(32))
            noise = generator.standard_normal((self._side, self._side, 3), dtype=np.float32)
            noisy = np.asarray(image) + random.uniform(2, 10) * noise
            image = Image.fromarray(noisy.clip(0, 255).astype(np.uint8))
        return image

    def _letterbox(self, image: Image.Image, random: Random) -> Image.Image:
        """Squeeze the picture in one direction and put it on the processor's gray."""
        share = random.uniform(0.55, 0.95)
        size = (self._canvas, int(self._canvas * share))
        inner = image.resize(size if random.random() < 0.5 else size[::-1])
        result = Image.new("RGB", image.size, PADDING)
        result.paste(inner, ((self._canvas - inner.width) // 2, (self._canvas - inner.height) // 2))
        return result


def _shade(colour: str, random: Random, spread: int) -> Rgb:
    red, green, blue = (
        max(0, min(255, part + random.randint(-spread, spread)))
        for part in random.choice(_PALETTE[colour])
    )
    return red, green, blue
