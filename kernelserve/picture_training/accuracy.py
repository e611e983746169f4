"""How often the model is right about pictures that it has never seen, asked through the engine like any user does."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from random import Random

import kernelserve as ks
from kernelserve.picture_training.painter import Painter
from kernelserve.picture_training.questions import TOPICS, Question, questions
from kernelserve.picture_training.scene import random_scene

__all__ = ["measure_accuracy", "unseen_questions"]

UNSEEN_SEED = 1_000_003
"""No training uses it."""
_MAX_TOKENS = 40


def measure_accuracy(
    model: str, pictures: int, seed: int = UNSEEN_SEED, most_things: int = 4
) -> dict[str, tuple[int, int]]:
    """Return for each topic how many answers were right, and of how many."""
    asked = unseen_questions(pictures, seed, most_things)
    chats = [
        [
            {
                "role": "user",
                "content": [
                    {"type": "image", "image": image},
                    {"type": "text", "text": question.text},
                ],
            }
        ]
        for image, question in asked
    ]
    with ks.LLM(model) as llm:
        params = ks.SamplingParams(temperature=0.0, max_tokens=_MAX_TOKENS)
        outputs = llm.chat(chats, params, use_tqdm=False)
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (_, question), output in zip(asked, outputs, strict=True):
        counts[question.topic][0] += is_right(output.outputs[0].text, question)
        counts[question.topic][1] += 1
    return {topic: (counts[topic][0], counts[topic][1]) for topic in TOPICS if topic in counts}


def unseen_questions(
    pictures: int, seed: int, most_things: int = 4
) -> list[tuple[object, Question]]:
    """Return pictures that were not trained on, each with one question of each topic that it has."""
    import matplotlib

    random = Random(seed)
    painter = Painter(320, Path(matplotlib.get_data_path()) / "fonts/ttf")
    asked: list[tuple[object, Question]] = []
    for _ in range(pictures):
        scene = random_scene(random, most_things)
        image = painter.paint(scene, random)
        topics = {question.topic: question for question in questions(scene, random)}
        asked += [(image, question) for question in topics.values()]
    return asked


def is_right(text: str, question: Question) -> bool:
    """Whether an answer has all key words of a question, each as a word of its own, in any number."""
    words = {_singular(word) for word in re.findall(r"[a-z0-9]+", text.lower())}
    return all(_singular(key.lower()) in words for key in question.keys)


def _singular(word: str) -> str:
    if word.endswith("sses"):
        return word.removesuffix("es")
    return word if word.endswith("ss") else word.removesuffix("s")
