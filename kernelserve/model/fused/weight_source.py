"""The weights of a decoder by the paths of their modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from kernelserve.kernels import StoredMatrix
from kernelserve.model.fused.shapes import Shapes
from kernelserve.model.fused.stored_parts import UnexpectedWeightError, check_shape, join_stored

if TYPE_CHECKING:
    from kernelserve.model.checkpoint import Checkpoint

__all__ = ["WeightSource"]


class WeightSource:
    """A checkpoint, and the module that transformers has made of it, if it has: that one gives what is missing."""

    def __init__(self, checkpoint: Checkpoint, module: nn.Module | None = None) -> None:
        self._checkpoint = checkpoint
        self._module = module
        self.is_complete = True
        """Whether the checkpoint has had everything that was asked for so far."""

    def matrix(self, shapes: Shapes) -> StoredMatrix:
        """Return the weights of these modules below each other. Raises UnexpectedWeightError."""
        stored = join_stored(self._checkpoint.stored_matrix, shapes)
        if stored is not None:
            return stored
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
        check_shape(name, tuple(found.shape), shape)
        return found
