"""Stage two: the eyes learn what the frozen language model needs to see in order to answer."""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional

from kernelserve.picture_training.answer_batch import AnswerBatch
from kernelserve.picture_training.caption_loss import CaptionLoss
from kernelserve.picture_training.picture_model import PictureModel
from kernelserve.picture_training.picture_stream import PictureStream, pixels_of
from kernelserve.picture_training.questions import Question, questions
from kernelserve.picture_training.scene import Scene
from kernelserve.picture_training.schedule import Schedule

__all__ = ["learn_answers"]

logger = logging.getLogger(__name__)

_BATCH_SIZE = 32
_ASKED = 6
"""Pictures of a batch that questions are asked about; the others only keep the names of things alive."""
_QUESTIONS = 5
_TOWER_RATE, _PROJECTOR_RATE = 2e-4, 6e-4
_CAPTION_WEIGHT = 0.5
_REPORT_EVERY, _SAVE_EVERY = 20, 60


def learn_answers(model: PictureModel, minutes: float, seed: int, folder: Path) -> None:
    """Train the eyes for some minutes through the language model, which stays as it is."""
    loss_of = CaptionLoss(model, map_weight=0.0)
    tower, projector = model.eyes
    optimizer = torch.optim.AdamW(
        [
            {"params": [*tower.parameters(), *loss_of.parameters()], "lr": _TOWER_RATE},
            {"params": list(projector.parameters()), "lr": _PROJECTOR_RATE},
        ],
        betas=(0.9, 0.98),
        weight_decay=0.02,
    )
    learned = [p for group in optimizer.param_groups for p in group["params"]]
    pictures = PictureStream(_BATCH_SIZE, seed).in_background()
    random = Random(seed)
    losses: list[float] = []
    for step in Schedule(optimizer, minutes).steps():
        images, scenes = next(pictures)
        hidden_states, embeddings = model.look(pixels_of(images))
        caption_loss, matches = loss_of(hidden_states, embeddings, scenes)
        asked = [_choose(scene, random) for scene in scenes[:_ASKED]]
        answer_loss = _answer_loss(model, embeddings[:_ASKED], AnswerBatch.of(model, asked))
        optimizer.zero_grad()
        (answer_loss + _CAPTION_WEIGHT * caption_loss).backward()
        nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        losses.append(float(answer_loss.detach()))
        if step % _REPORT_EVERY == _REPORT_EVERY - 1:
            logger.info(
                "answers: %d questions, loss %.3f, words %.3f of captions right",
                (step + 1) * _ASKED * _QUESTIONS,
                sum(losses[-_REPORT_EVERY:]) / _REPORT_EVERY,
                float(matches.float().mean()),
            )
        if step % _SAVE_EVERY == _SAVE_EVERY - 1:
            model.save(folder)


def _choose(scene: Scene, random: Random) -> list[Question]:
    """Some questions of as many topics as there are: descriptions are long, so only for every other picture."""
    found = questions(scene, random)
    first = {question.topic: question for question in found}
    if random.random() < 0.5:
        first.pop("description")
    others = [question for question in found if question not in first.values()]
    return [*first.values(), *(q for q in others if q.topic != "description")][:_QUESTIONS]


def _answer_loss(model: PictureModel, embeddings: Tensor, batch: AnswerBatch) -> Tensor:
    module = model.module
    inputs = module.get_input_embeddings()(batch.token_ids)
    inputs = inputs.masked_scatter(batch.image_places[..., None], embeddings)
    states = module.model.language_model(
        inputs_embeds=inputs,
        position_ids=batch.position_ids,
        attention_mask=batch.attention_mask,
        use_cache=False,
    ).last_hidden_state
    answers = batch.labels != -100
    logits = module.lm_head(states[answers])
    return functional.cross_entropy(logits, batch.labels[answers])
