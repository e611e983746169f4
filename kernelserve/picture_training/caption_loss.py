"""What the eyes learn first, without the language model: each image token is to be the word that it stands for."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from kernelserve.picture_training.captions import CAPTION_WORDS, caption_words
from kernelserve.picture_training.picture_model import PictureModel
from kernelserve.picture_training.scene import COLOURS, DIGIT_WORDS, SHAPES, Scene

__all__ = ["CaptionLoss"]

_NAMES = ("nothing", *SHAPES, *DIGIT_WORDS)
_COLOURS = ("nothing", *COLOURS)
_GRID = 10
"""Rows and columns of the tower's third stage."""
_STAGE, _STAGE_WIDTH = 2, 128
_EMPTY_WEIGHT = 0.15
_CLOSENESS_WEIGHT = 0.1


class CaptionLoss(nn.Module):
    """Compares image embeddings with those of the caption's words, and the third stage with a map of the things.

    An embedding is to be nearer to its word than to any other of the captions, by angle, and near to it in
    the space of the language model, which then reads a picture like text. The map says what lies in each
    field of the picture; it only helps the tower to learn and is not part of the model.
    """

    def __init__(self, model: PictureModel, *, map_weight: float) -> None:
        super().__init__()
        self._map_weight = map_weight
        self.words = model.word_embeddings(list(CAPTION_WORDS))
        self.scale = nn.Parameter(torch.tensor(12.0))
        self.map_head = nn.Linear(_STAGE_WIDTH, len(_NAMES) + len(_COLOURS))
        self._index = {word: i for i, word in enumerate(CAPTION_WORDS)}

    def targets(self, scenes: list[Scene]) -> Tensor:
        """Return the place [B, 25] of each caption's words in CAPTION_WORDS."""
        return torch.tensor([[self._index[word] for word in caption_words(s)] for s in scenes])

    def forward(
        self, hidden_states: tuple[Tensor, ...], embeddings: Tensor, scenes: list[Scene]
    ) -> tuple[Tensor, Tensor]:
        """Return the loss and which embeddings [B, 25] are nearest to their words."""
        targets = self.targets(scenes)
        directions = functional.normalize(self.words, dim=-1)
        logits = self.scale * functional.normalize(embeddings, dim=-1) @ directions.T
        naming = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        distance = (embeddings - self.words[targets]).square().mean() / self.words.square().mean()
        loss = naming + _CLOSENESS_WEIGHT * distance
        if self._map_weight:
            loss = loss + self._map_weight * self._map_loss(hidden_states[_STAGE], scenes)
        return loss, logits.argmax(-1) == targets

    def _map_loss(self, stage: Tensor, scenes: list[Scene]) -> Tensor:
        """Of the third stage [B, 128, 10, 10]."""
        logits = self.map_head(stage.permute(0, 2, 3, 1)).flatten(0, 2)
        names, colours = _maps(scenes)
        split = len(_NAMES)
        return _cross_entropy(logits[:, :split], names) + _cross_entropy(logits[:, split:], colours)


def _maps(scenes: list[Scene]) -> tuple[Tensor, Tensor]:
    """Return the names and colours [B, 10, 10] of what lies in each field."""
    names = torch.zeros(len(scenes), _GRID, _GRID, dtype=torch.long)
    colours = names.clone()
    centres = (torch.arange(_GRID) + 0.5) / _GRID
    for i, scene in enumerate(scenes):
        for thing in scene.things:
            reach = max(0.5 / _GRID, 0.35 * thing.size)
            rows, columns = ((centres - at).abs() <= reach for at in (thing.y, thing.x))
            field = rows[:, None] & columns[None]
            names[i][field] = _NAMES.index(thing.name)
            colours[i][field] = _COLOURS.index(thing.colour)
    return names, colours


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    weights = torch.ones(logits.shape[-1])
    weights[0] = _EMPTY_WEIGHT
    return functional.cross_entropy(logits, targets.flatten(), weights)
