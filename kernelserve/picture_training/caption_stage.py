"""Stage one: the eyes learn to name what is in a picture, without the language model."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from torch import nn

from kernelserve.picture_training.caption_loss import CaptionLoss
from kernelserve.picture_training.caption_report import CaptionReport
from kernelserve.picture_training.picture_model import PictureModel
from kernelserve.picture_training.picture_stream import PictureStream, pixels_of
from kernelserve.picture_training.schedule import Schedule

__all__ = ["learn_captions"]

logger = logging.getLogger(__name__)

_BATCH_SIZE = 32
_LEARNING_RATE = 1e-3
_MAP_WEIGHT = 0.5
_SINGLE_SHARE = 0.3
_REPORT_EVERY, _SAVE_EVERY = 100, 500


def learn_captions(
    model: PictureModel, minutes: float, seed: int, folder: Path, *, is_new: bool = True
) -> None:
    """Train the eyes for some minutes, saving them now and then.

    With new eyes each picture shows one thing for a while: what a star is, is learned before where its words belong.
    """
    loss_of = CaptionLoss(model, map_weight=_MAP_WEIGHT)
    learned = [*(p for part in model.eyes for p in part.parameters()), *loss_of.parameters()]
    rate = _LEARNING_RATE if is_new else _LEARNING_RATE / 2
    optimizer = torch.optim.AdamW(learned, lr=rate, betas=(0.9, 0.98), weight_decay=0.05)
    schedule = Schedule(optimizer, minutes)
    single = is_new
    pictures = PictureStream(_BATCH_SIZE, seed, most_things=1 if single else 4).in_background()
    report = CaptionReport()
    for step in schedule.steps():
        if single and schedule.share > _SINGLE_SHARE:
            single = False
            pictures = PictureStream(_BATCH_SIZE, seed).in_background()
        images, scenes = next(pictures)
        loss, matches = loss_of(*model.look(pixels_of(images)), scenes)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        report.add(float(loss.detach()), matches, loss_of.targets(scenes))
        if step % _REPORT_EVERY == _REPORT_EVERY - 1:
            logger.info("captions, %d pictures: %s", (step + 1) * _BATCH_SIZE, report.line())
            report = CaptionReport()
        if step % _SAVE_EVERY == _SAVE_EVERY - 1:
            model.save(folder)
