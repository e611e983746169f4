"""Questions about a scene and the sentences that answer them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from kernelserve.picture_training.scene import COUNT_WORDS, SHAPES, Scene, Thing

__all__ = ["TOPICS", "Question", "questions"]

TOPICS = ("description", "colour", "shape", "count", "digit", "place", "presence", "background")


@dataclass(frozen=True, slots=True)
class Question:
    """One question; an answer is right if it has all of `keys` among its words."""

    topic: str
    """One of TOPICS."""
    text: str
    answer: str
    keys: tuple[str, ...]


def questions(scene: Scene, random: Random) -> list[Question]:
    """Return what can be asked about the scene and has one right answer, worded by lot, in random order."""
    found = [*_general(scene, random), *_about_all(scene, random)]
    for thing in scene.things:
        found += _about(thing, scene, random)
    if not scene.digit:
        found += _counts(scene, random)
    random.shuffle(found)
    return found


def _general(scene: Scene, random: Random) -> Iterator[Question]:
    picture = random.choice(("picture", "picture", "image", "drawing"))
    text = random.choice(
        (
            f"What is in the {picture}?",
            f"Describe the {picture}.",
            "What do you see?",
            f"What does the {picture} show?",
            f"What can you see in this {picture}?",
        )
    )
    answer = _description(scene)
    things = tuple(word for thing in scene.things for word in (thing.colour, thing.name))
    yield Question("description", text, answer, things)
    colour = _colour_word(random)
    yield Question(
        "background",
        random.choice((f"What {colour} is the background?", f"Which {colour} is the background?")),
        f"The background is {scene.background}.",
        (scene.background,),
    )


def _about_all(scene: Scene, random: Random) -> Iterator[Question]:
    if scene.digit:
        text = random.choice(
            (
                "Which digit is this?",
                "What digit is in the picture?",
                "What number do you see?",
                "Which number is in the picture?",
                "What digit is it?",
                "Read the digit.",
            )
        )
        yield Question("digit", text, f"The digit is {scene.digit.name}.", (scene.digit.name,))
        return
    names = [thing.name for thing in scene.things]
    name = random.choice(names) if random.random() < 0.5 else random.choice(SHAPES)
    text = random.choice(
        (f"Is there a {name}?", f"Is there a {name} in the picture?", f"Do you see a {name}?")
    )
    there = name in names
    answer = f"Yes, there is a {name}." if there else f"No, there is no {name}."
    yield Question("presence", text, answer, ("Yes" if there else "No",))


def _about(thing: Thing, scene: Scene, random: Random) -> Iterator[Question]:
    colour = _colour_word(random)
    alone = len(scene.things) == 1
    called = "digit" if thing.is_digit else thing.name
    if _is_unique(thing, scene, "name"):
        name = (
            random.choice((called, called, "shape" if not thing.is_digit else called))
            if alone
            else called
        )
        text = random.choice(
            (f"What {colour} is the {name}?", f"Which {colour} does the {name} have?")
        )
        if alone and random.random() < 0.3:
            name, text = "It", f"What {colour} is it?"
        subject = "It" if name == "It" else f"The {name}"
        yield Question("colour", text, f"{subject} is {thing.colour}.", (thing.colour,))
        place, keys = _place_words(thing)
        text = random.choice((f"Where is the {called}?", f"Where in the picture is the {called}?"))
        yield Question("place", text, f"The {called} is {place}.", keys)
    if thing.is_digit:
        return
    if alone:
        text = random.choice(
            ("What shape is it?", "Which shape is this?", "What shape do you see?")
        )
        yield Question("shape", text, f"It is a {thing.name}.", (thing.name,))
    if _is_unique(thing, scene, "colour"):
        text = random.choice(
            (
                f"What shape is {thing.colour}?",
                f"Which shape is {thing.colour}?",
                f"What is the {thing.colour} shape?",
            )
        )
        yield Question("shape", text, f"The {thing.colour} shape is a {thing.name}.", (thing.name,))


def _counts(scene: Scene, random: Random) -> Iterator[Question]:
    total = len(scene.things)
    text = random.choice(
        (
            "How many shapes are there?",
            "How many shapes do you see?",
            "How many things are in the picture?",
            "Count the shapes.",
        )
    )
    yield Question("count", text, _there_are(total, "shape"), _count_keys(total))
    names = [thing.name for thing in scene.things]
    name = random.choice(names) if random.random() < 0.8 else random.choice(SHAPES)
    plural = _plural(name, 2)
    text = random.choice(
        (f"How many {plural} are there?", f"How many {plural} do you see?", f"Count the {plural}.")
    )
    count = names.count(name)
    yield Question("count", text, _there_are(count, name), _count_keys(count))


def _description(scene: Scene) -> str:
    behind = f"on a {scene.background} background"
    if scene.background == "orange":
        behind = f"on an {scene.background} background"
    if scene.digit:
        return f"The digit {scene.digit.name} in {scene.digit.colour} {behind}."
    first, count = scene.things[0], len(scene.things)
    if all((thing.name, thing.colour) == (first.name, first.colour) for thing in scene.things):
        if count == 1:
            return f"{_a(first).capitalize()} {_place_words(first)[0]} {behind}."
        return f"{COUNT_WORDS[count].capitalize()} {first.colour} {_plural(first.name, count)} {behind}."
    parts = [_a(thing) for thing in scene.things]
    listed = ", ".join(parts[:-1]) + f" and {parts[-1]}"
    return f"{listed[0].upper()}{listed[1:]} {behind}."


def _place_words(thing: Thing) -> tuple[str, tuple[str, ...]]:
    row, column = thing.place
    if row == column == "center":
        return "in the center", ("center",)
    if row == "center":
        return f"on the {column}", (column,)
    if column == "center":
        return f"at the {row}", (row,)
    return f"at the {row} {column}", (row, column)


def _there_are(count: int, name: str) -> str:
    if count == 1:
        return f"There is one {name}."
    return f"There are {COUNT_WORDS[count] if count else 'no'} {_plural(name, count)}."


def _count_keys(count: int) -> tuple[str, ...]:
    return (COUNT_WORDS[count] if count else "no",)


def _plural(name: str, count: int) -> str:
    if count == 1:
        return name
    return f"{name}es" if name == "cross" else f"{name}s"


def _a(thing: Thing) -> str:
    return f"{'an' if thing.colour == 'orange' else 'a'} {thing.colour} {thing.name}"


def _is_unique(thing: Thing, scene: Scene, attribute: str) -> bool:
    values = [getattr(other, attribute) for other in scene.things]
    return values.count(getattr(thing, attribute)) == 1


def _colour_word(random: Random) -> str:
    return random.choice(("colour", "color"))
