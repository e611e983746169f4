"""Scenes, captions and questions: what is asked has one right answer, and the caption says it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelserve.picture_training.accuracy import is_right
from kernelserve.picture_training.captions import CAPTION_WORDS, NUM_IMAGE_TOKENS, caption_words
from kernelserve.picture_training.questions import TOPICS, Question, questions
from kernelserve.picture_training.scene import Scene, Thing, random_scene

seeds = st.integers(0, 2**32)
TWO = Scene(
    "white",
    (Thing("star", "red", 0.2, 0.2, 0.2), Thing("circle", "blue", 0.8, 0.5, 0.3)),
)


@given(seeds)
@settings(max_examples=200)
def test_things_lie_in_the_picture_and_apart(seed):
    scene = random_scene(Random(seed))
    assert 1 <= len(scene.things) <= 4
    for i, thing in enumerate(scene.things):
        half = thing.size / 2
        assert half <= thing.x <= 1 - half
        assert half <= thing.y <= 1 - half
        assert thing.colour != scene.background
        for other in scene.things[:i]:
            apart = max(abs(thing.x - other.x), abs(thing.y - other.y))
            assert apart > (thing.size + other.size) / 2


@given(seeds)
@settings(max_examples=200)
def test_every_scene_has_a_caption_of_known_words(seed):
    words = caption_words(random_scene(Random(seed)))
    assert len(words) == NUM_IMAGE_TOKENS
    assert set(words) <= set(CAPTION_WORDS)


def test_a_caption_reads_from_top_to_bottom():
    assert "".join(caption_words(TWO)).startswith(
        " two shapes red star top left blue circle center right"
    )


@given(seeds)
@settings(max_examples=200)
def test_the_answer_to_each_question_counts_as_right_and_that_of_another_as_wrong(seed):
    random = Random(seed)
    asked = questions(random_scene(random), random)
    assert {question.topic for question in asked} <= set(TOPICS)
    for question in asked:
        assert is_right(question.answer, question)
        assert is_right(question.answer.upper(), question)
        assert not is_right("I cannot tell.", question)


@pytest.mark.parametrize(
    ("text", "topic", "answer"),
    [
        ("star", "colour", "The star is red."),
        ("circle", "place", "The circle is on the right."),
        ("shapes", "count", "There are two shapes."),
        ("background", "background", "The background is white."),
    ],
)
def test_what_is_asked_about_two_things(text, topic, answer):
    found = [q for seed in range(40) for q in questions(TWO, Random(seed)) if q.topic == topic]
    assert answer in {
        question.answer for question in found if text in question.text or topic == "count"
    }


@pytest.mark.parametrize("text", ["The digit is 17.", "It is 1.", "seven"])
def test_a_digit_is_right_only_as_a_word_of_its_own(text):
    assert not is_right(text, Question("digit", "Which digit is it?", "The digit is 7.", ("7",)))


def test_no_scene_asks_for_what_is_not_unique():
    twins = Scene(
        "white", (Thing("star", "red", 0.2, 0.2, 0.2), Thing("star", "blue", 0.8, 0.5, 0.3))
    )
    texts = [q.text for seed in range(40) for q in questions(twins, Random(seed))]
    assert not any("olor" in t and "star" in t for t in texts)
    assert not any(t.startswith("Where") for t in texts)
