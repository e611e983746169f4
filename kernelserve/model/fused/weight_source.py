"""The weights of a decoder by the paths of their modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import nn

from kernelserve.kernels import StoredMatrix

if TYPE_CHECKING:
    from kernelserve.model.checkpoint import Checkpoint

__all__ = ["Shapes", "UnexpectedWeightError", "WeightSource"]

Shapes = Mapping[str, tuple[int, int]]
"""Paths of modules -> outputs and inputs of each."""


class UnexpectedWeightError(Exception):
    """Which weight is not in the files, or not of the shape that it should have."""


class WeightSource:
    """A checkpoint, and the module that transformers has made of it, if it has: that one gives what is missing."""

    def __init__(self, checkpoint: Checkpoint, module: nn.Module | None = None) -> None:
        self._checkpoint = checkpoint
        self._module = module
        self.is_complete = True
        """Whether the checkpoint has had everything that was asked for so far."""

    def matrix(self, shapes: Shapes) -> StoredMatrix:
        """Return the weights of these modules below each other. Raises UnexpectedWeightError."""
        found = {path: self._checkpoint.stored_matrix(path) for path in shapes}
        parts = [part for part in found.values() if part is not None]
        if len(parts) == len(shapes) and len({part.source for part in parts}) == 1:
            for (path, shape), part in zip(shapes.items(), parts, strict=True):
                _check(path, (part.n, part.k), shape)
            return StoredMatrix.joined(parts) if len(parts) > 1 else parts[0]
        weights = [self.tensor(f"{path}.weight", shape) for path, shape in shapes.items()]
        return StoredMatrix.of(torch.cat(weights) if len(weights) > 1 else weights[0])

    def tensor(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """Return a parameter in a float dtype. Raises UnexpectedWeightError."""
        found = self._checkpoint.weight(name)
        if found is None:
            self.is_complete = False
            if self._module is None:
                raise UnexpectedWeightError(f"{name} is in none of the files")
            found = self._module.get_parameter(name).detach()
        _check(name, tuple(found.shape), shape)
        return found


def _check(name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """The kernels go by the shapes that they are told."""
    if shape != wanted:
        raise UnexpectedWeightError(f"{name} is {list(shape)} in place of {list(wanted)}")
