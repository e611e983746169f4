"""Pictures with several questions each, as one batch of rows in which no question sees another."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernelserve.picture_training.captions import NUM_IMAGE_TOKENS
from kernelserve.picture_training.picture_model import PictureModel
from kernelserve.picture_training.questions import Question

__all__ = ["AnswerBatch"]

_OPENING = "<|im_start|>user\n"
_QUESTION = "\n{}<|im_end|>\n<|im_start|>assistant\n"
_ANSWER = "{}<|im_end|>"


@dataclass(frozen=True, slots=True)
class AnswerBatch:
    """Rows of T tokens: the opening, the picture, then questions with answers side by side.

    Each question goes on from the picture, at the positions behind it: to the model every one is the first.
    """

    token_ids: Tensor
    """[B, T]; where the picture is, anything."""
    image_places: Tensor
    """[B, T], true where an image embedding belongs."""
    position_ids: Tensor
    """[B, T]."""
    attention_mask: Tensor
    """[B, 1, T, T], 0 or minus infinity."""
    labels: Tensor
    """[B, T]: the next token where it belongs to an answer, else -100."""

    @classmethod
    def of(cls, model: PictureModel, asked: list[list[Question]]) -> AnswerBatch:
        """Return the batch of some questions for each picture."""
        encode = model.tokenizer.encode
        opening = encode(_OPENING, add_special_tokens=False)
        start = len(opening) + NUM_IMAGE_TOKENS
        rows: list[tuple[list[int], list[int], list[int], list[int]]] = []
        for questions in asked:
            ids = opening + [0] * NUM_IMAGE_TOKENS
            positions, pieces = list(range(start)), [0] * start
            labels = [-100] * start
            for piece, question in enumerate(questions, 1):
                prompt = encode(_QUESTION.format(question.text), add_special_tokens=False)
                answer = encode(_ANSWER.format(question.answer), add_special_tokens=False)
                ids += prompt + answer
                count = len(prompt) + len(answer)
                positions += range(start, start + count)
                pieces += [piece] * count
                labels += [-100] * (len(prompt) - 1) + answer + [-100]
            rows.append((ids, positions, pieces, labels))
        token_ids, position_ids, piece_ids, labels_ = (
            _pad([row[i] for row in rows], filler) for i, filler in enumerate((0, 0, -1, -100))
        )
        image_places = torch.zeros_like(token_ids, dtype=torch.bool)
        image_places[:, len(opening) : start] = True
        return cls(token_ids, image_places, position_ids, _mask(piece_ids), labels_)


def _pad(rows: list[list[int]], filler: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [filler] * (longest - len(row)) for row in rows])


def _mask(pieces: Tensor) -> Tensor:
    """A token sees the opening, the picture, and what is before it in its own piece."""
    length = pieces.shape[1]
    before = torch.ones(length, length, dtype=torch.bool).tril()
    same = (pieces[:, :, None] == pieces[:, None, :]) | (pieces[:, None, :] == 0)
    mask = torch.zeros(same.shape)
    mask.masked_fill_(~(same & before), torch.finfo(torch.float32).min)
    return mask[:, None]
