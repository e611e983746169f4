"""Packs the weights of a model's linear modules, and remembers which it has packed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import nn

from kernelserve.kernels import CpuKernels, PackedMatrix, StoredMatrix

__all__ = ["StoredWeights", "WeightPacker"]

StoredWeights = Callable[[str], StoredMatrix | None]
"""Path of a module -> its weight as the checkpoint holds it; None: take the module's own."""


class WeightPacker:
    """Owns what it has packed: the structures of the kernels only point there."""

    def __init__(self, kernels: CpuKernels, module: nn.Module, stored: StoredWeights) -> None:
        self._kernels = kernels
        self._module = module
        self._stored = stored
        self._packed: dict[tuple[str, ...], PackedMatrix] = {}
        self._vectors: list[torch.Tensor] = []

    @property
    def num_bytes(self) -> int:
        """Memory of everything packed."""
        matrices = sum(matrix.num_bytes for matrix in self._packed.values())
        return matrices + sum(vector.nbytes for vector in self._vectors)

    def matrix(self, *names: str) -> PackedMatrix:
        """Return the weights of these modules below each other, with their biases, as one matrix."""
        if names not in self._packed:
            modules = [self._module.get_submodule(name) for name in names]
            weight = self._stored_matrix(names, modules)
            self._packed[names] = self._kernels.pack(weight, _joined_bias(modules))
        return self._packed[names]

    def vector(self, weight: torch.Tensor) -> int:
        """Return the address of the numbers in float32."""
        self._vectors.append(weight.detach().float().contiguous())
        return self._vectors[-1].data_ptr()

    def release_originals(self, tied: str) -> None:
        """Free the weights of the modules that were packed, and of `tied`: they cannot run any more."""
        for name in {tied, *chain.from_iterable(self._packed)}:
            module: Any = self._module.get_submodule(name)
            module.weight = nn.Parameter(torch.empty(0), requires_grad=False)

    def _stored_matrix(self, names: tuple[str, ...], modules: list[Any]) -> StoredMatrix:
        found = [self._stored(name) for name in names]
        parts = [part for part in found if part is not None]
        if len(parts) < len(names) or len({part.source for part in parts}) > 1:
            parts = [StoredMatrix.of(torch.cat([module.weight for module in modules]))]
        return StoredMatrix.joined(parts) if len(parts) > 1 else parts[0]


def _joined_bias(modules: list[Any]) -> torch.Tensor | None:
    """None if no module has a bias; zeros for one that has none beside some that have."""
    biases = [getattr(module, "bias", None) for module in modules]
    if all(bias is None for bias in biases):
        return None
    return torch.cat(
        [
            torch.zeros(len(module.weight)) if bias is None else bias.detach().float()
            for module, bias in zip(modules, biases, strict=True)
        ]
    )
