"""The embedded model that sees, through the engine: what it says of drawings, and that transformers says the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

import kernelserve as ks
from kernelserve.config import VISION_MODEL
from kernelserve.picture_training.accuracy import is_right, unseen_questions

pytestmark = pytest.mark.process

GREEDY = ks.SamplingParams(temperature=0.0, max_tokens=24)


def drawing(size: int = 300, paper: str = "white") -> tuple[Image.Image, ImageDraw.ImageDraw]:
    image = Image.new("RGB", (size, size), paper)
    return image, ImageDraw.Draw(image)


def red_circle() -> Image.Image:
    image, draw = drawing()
    draw.ellipse((60, 70, 220, 230), fill="red")
    return image


def blue_square_and_green_triangle() -> Image.Image:
    image, draw = drawing()
    draw.rectangle((30, 110, 120, 200), fill="blue")
    draw.polygon([(220, 90), (280, 200), (160, 200)], fill="green")
    return image


def three_black_circles() -> Image.Image:
    image, draw = drawing()
    for x, y in ((40, 50), (180, 40), (110, 190)):
        draw.ellipse((x, y, x + 70, y + 70), outline="black", width=8)
    return image


def seven() -> Image.Image:
    image, draw = drawing()
    draw.line([(80, 60), (220, 60), (130, 250)], fill="purple", width=22, joint="curve")
    return image


DRAWINGS = [
    (red_circle, "What colour is the circle?", "red"),
    (red_circle, "What shape is it?", "circle"),
    (red_circle, "How many shapes are there?", "one"),
    (blue_square_and_green_triangle, "What colour is the square?", "blue"),
    (blue_square_and_green_triangle, "What colour is the triangle?", "green"),
    (blue_square_and_green_triangle, "Where is the square?", "left"),
    (three_black_circles, "How many circles are there?", "three"),
    (seven, "Which digit is this?", "7"),
    (seven, "What colour is the digit?", "purple"),
]


def chat(image: Any, text: str) -> list[dict[str, Any]]:
    content = [{"type": "image", "image": image}, {"type": "text", "text": text}]
    return [{"role": "user", "content": content}]


@pytest.fixture(scope="module")
def llm(tmp_path_factory) -> Iterator[ks.LLM]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELSERVE_RUNTIME_DIR", str(tmp_path_factory.mktemp("rt")))
        with ks.LLM(VISION_MODEL, dtype="float32", num_gpu_blocks=400, show_progress=False) as llm:
            yield llm


def test_it_sees_what_a_user_draws(llm) -> None:
    outputs = llm.chat([chat(draw(), text) for draw, text, _ in DRAWINGS], GREEDY, use_tqdm=False)
    answers = [output.text for output in outputs]
    wrong = [
        (text, answer)
        for (_, text, word), answer in zip(DRAWINGS, answers, strict=True)
        if word not in answer.lower()
    ]
    assert not wrong


def test_it_is_right_about_nearly_all_unseen_pictures_of_one_thing(llm) -> None:
    topics = ("background", "colour", "count", "digit")
    unseen = unseen_questions(20, seed=77, most_things=1)
    asked = [(image, question) for image, question in unseen if question.topic in topics]
    outputs = llm.chat([chat(image, q.text) for image, q in asked], GREEDY, use_tqdm=False)
    right = [is_right(output.text, q) for output, (_, q) in zip(outputs, asked, strict=True)]
    assert sum(right) >= 0.9 * len(right)


def test_it_still_answers_without_a_picture(llm) -> None:
    question = [{"role": "user", "content": "What is the capital of France?"}]
    [output] = llm.chat(question, GREEDY, use_tqdm=False)
    assert "Paris" in output.text


def test_its_answers_are_those_of_transformers(llm) -> None:
    processor, model = reference()
    for draw, text in ((red_circle, "What do you see?"), (seven, "Which digit is this?")):
        [output] = llm.chat(chat(draw(), text), GREEDY, use_tqdm=False)
        pixels = processor(images=[draw()], return_tensors="pt")["pixel_values"]
        ids = torch.tensor([output.prompt_token_ids])
        with torch.inference_mode():
            answer = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                pixel_values=torch.as_tensor(np.asarray(pixels)),
                max_new_tokens=24,
                do_sample=False,
                pad_token_id=2,
                eos_token_id=2,
            )
        expected = answer[0, ids.shape[1] :].tolist()
        assert output.outputs[0].token_ids == expected


def reference() -> tuple[Any, Any]:
    """The model's processor and the same weights in transformers, with its own attention."""
    from transformers import AutoImageProcessor

    from kernelserve.model.model_source import locate_model
    from kernelserve.picture_training.picture_model import PictureModel

    folder = Path(locate_model(VISION_MODEL))
    model = PictureModel.start(folder)
    model.load_eyes(folder)
    return AutoImageProcessor.from_pretrained(folder, backend="pil"), model.module.eval()
