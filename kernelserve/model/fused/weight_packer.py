"""Packs the weights of a decoder for the kernels."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from kernelserve.kernels import PackedMatrix
from kernelserve.kernels.cpu_kernels import CpuKernels
from kernelserve.model.fused.shapes import Shapes
from kernelserve.model.fused.weight_source import WeightSource

__all__ = ["WeightPacker"]


class WeightPacker:
    """Packs each matrix once. Whoever uses the addresses keeps `held`: the packer itself holds the checkpoint open.

    Methods raise UnexpectedWeightError.
    """

    def __init__(
        self,
        kernels: CpuKernels,
        source: WeightSource,
        biased: frozenset[str],
        packed: Mapping[tuple[str, ...], PackedMatrix],
    ) -> None:
        """`packed` are matrices that need no packing any more, by the paths of what is in them."""
        self._kernels = kernels
        self._source = source
        self._biased = biased
        self._packed = dict(packed)
        self._vectors: list[torch.Tensor] = []

    @property
    def held(self) -> list[PackedMatrix | torch.Tensor]:
        """Everything packed so far."""
        return [*self._packed.values(), *self._vectors]

    def matrix(self, shapes: Shapes) -> PackedMatrix:
        """Return the weights of these modules below each other, with their biases, as one matrix."""
        paths = tuple(shapes)
        if paths not in self._packed:
            bias = self._joined_bias(shapes)
            self._packed[paths] = self._kernels.pack(self._source.matrix(shapes), bias)
        return self._packed[paths]

    def vector(self, path: str, size: int) -> torch.Tensor:
        """Return the weight of a norm in float32."""
        weight = self._source.tensor(f"{path}.weight", (size,)).float().contiguous()
        self._vectors.append(weight)
        return weight

    def _joined_bias(self, shapes: Shapes) -> torch.Tensor | None:
        """None if no module has a bias; zeros for one that has none beside some that have."""
        if not self._biased.intersection(shapes):
            return None
        return torch.cat(
            [
                self._source.tensor(f"{path}.bias", (rows,)).float()
                if path in self._biased
                else torch.zeros(rows)
                for path, (rows, _) in shapes.items()
            ]
        )
