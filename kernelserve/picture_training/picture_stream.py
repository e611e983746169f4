"""Endless pictures for training, painted by another process while the model learns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, IterableDataset

from kernelserve.picture_training.painter import Painter
from kernelserve.picture_training.scene import Scene, random_scene

__all__ = ["PictureStream", "pixels_of"]

SIDE = 160
Batch = tuple[NDArray[np.uint8], list[Scene]]


class PictureStream(IterableDataset[Batch]):
    """Batches of pictures [B, side, side, 3] and their scenes; the same for the same seed."""

    def __init__(
        self, batch_size: int, seed: int, *, most_things: int = 4, side: int = SIDE
    ) -> None:
        super().__init__()
        self._most_things = most_things
        self._batch_size = batch_size
        self._seed = seed
        self._side = side

    def __iter__(self) -> Iterator[Batch]:
        import matplotlib

        painter = Painter(self._side, Path(matplotlib.get_data_path()) / "fonts/ttf")
        random = Random(self._seed)
        while True:
            scenes = [random_scene(random, self._most_things) for _ in range(self._batch_size)]
            yield np.stack([np.asarray(painter.paint(scene, random)) for scene in scenes]), scenes

    def in_background(self) -> Iterator[Batch]:
        """Iterate, with the painting in a process of its own."""
        return iter(DataLoader(self, batch_size=None, num_workers=1, prefetch_factor=4))


def pixels_of(pictures: NDArray[np.uint8] | torch.Tensor) -> torch.Tensor:
    """Return what the model's processor makes of pictures [B, side, side, 3]: [B, 3, side, side] in -1 .. 1."""
    tensor = torch.as_tensor(pictures)
    return (tensor.permute(0, 3, 1, 2).float() / 127.5 - 1).contiguous()
