"""The words of a picture, one for each image token: what the encoder learns to say first."""

from __future__ import annotations

from kernelserve.picture_training.scene import COLOURS, COUNT_WORDS, DIGIT_WORDS, SHAPES, Scene

__all__ = ["CAPTION_WORDS", "NUM_IMAGE_TOKENS", "caption_words"]

NUM_IMAGE_TOKENS = 25
_MAX_THINGS = 4
_NOTHING = "."
_PLACES = ("top", "center", "bottom", "left", "right")
_NOUNS = ("shape", "shapes", "digit")

CAPTION_WORDS = (
    _NOTHING,
    *(
        f" {word}"
        for word in (
            *COLOURS,
            *SHAPES,
            *COUNT_WORDS[1:5],
            *_PLACES,
            *_NOUNS,
            "on",
            "a",
            "background",
        )
    ),
    *DIGIT_WORDS,
)
"""All that a caption may say; each is one token of SmolLM2."""


def caption_words(scene: Scene) -> list[str]:
    """Return 25 of CAPTION_WORDS: how many, then colour, name, row and column of each, then the background."""
    count = len(scene.things)
    noun = "digit" if scene.digit else "shape" if count == 1 else "shapes"
    words = [f" {COUNT_WORDS[count]}", f" {noun}"]
    for thing in scene.things:
        name = thing.name if thing.is_digit else f" {thing.name}"
        words += [f" {thing.colour}", name, *(f" {place}" for place in thing.place)]
    words += [_NOTHING] * (4 * (_MAX_THINGS - count))
    words += [" on", " a", f" {scene.background}", " background"]
    return words + [_NOTHING] * (NUM_IMAGE_TOKENS - len(words))
