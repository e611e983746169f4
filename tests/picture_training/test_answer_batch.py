"""Questions that stand side by side behind one picture do not see each other."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from kernelserve.picture_training.answer_batch import AnswerBatch
from kernelserve.picture_training.captions import NUM_IMAGE_TOKENS
from kernelserve.picture_training.questions import questions
from kernelserve.picture_training.scene import random_scene


@pytest.fixture(scope="module")
def tiny() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture
def model() -> Any:
    def encode(text: str, add_special_tokens: bool) -> list[int]:
        return list(text.encode())

    return SimpleNamespace(tokenizer=SimpleNamespace(encode=encode))


def answer_logits(tiny: Any, batch: AnswerBatch, image: torch.Tensor) -> list[torch.Tensor]:
    embeddings = tiny.get_input_embeddings()(batch.token_ids)
    embeddings = embeddings.masked_scatter(batch.image_places[..., None], image)
    with torch.no_grad():
        logits = tiny(
            inputs_embeds=embeddings,
            position_ids=batch.position_ids,
            attention_mask=batch.attention_mask,
        ).logits
    return [row[labels != -100] for row, labels in zip(logits, batch.labels, strict=True)]


def test_each_answer_is_as_if_its_question_were_the_only_one(tiny, model) -> None:
    asked = [questions(random_scene(Random(seed)), Random(seed))[:4] for seed in range(2)]
    images = torch.randn(2, NUM_IMAGE_TOKENS, 32)
    together = answer_logits(tiny, AnswerBatch.of(model, asked), images)
    for row, image, found in zip(asked, images, together, strict=True):
        alone = [
            answer_logits(tiny, AnswerBatch.of(model, [[question]]), image[None])[0]
            for question in row
        ]
        torch.testing.assert_close(found, torch.cat(alone), rtol=1e-4, atol=1e-5)


def test_labels_are_the_answers_with_their_end(model) -> None:
    row = questions(random_scene(Random(5)), Random(5))[:3]
    batch = AnswerBatch.of(model, [row])
    said = bytes(batch.labels[batch.labels != -100].tolist()).decode()
    assert said == "".join(f"{question.answer}<|im_end|>" for question in row)
    assert int(batch.image_places.sum()) == NUM_IMAGE_TOKENS
