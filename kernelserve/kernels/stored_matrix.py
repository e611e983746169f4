"""A weight matrix as a checkpoint holds it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

__all__ = ["Source", "StoredMatrix"]


class Source(IntEnum):
    """How numbers are stored; the values are those of cpu/pack.h."""

    FLOAT32 = 0
    BFLOAT16 = 1
    FLOAT16 = 2
    Q8_0 = 3
    Q4_0 = 4
    Q4_1 = 5


@dataclass(slots=True, frozen=True)
class StoredMatrix:
    """n rows of k numbers: plain ones, or GGUF blocks of 32."""

    source: Source
    data: NDArray[np.uint8]
    """The rows one after the other."""
    n: int
    k: int
    order: NDArray[np.int64] | None = None
    """[n]: row i of the matrix is row order[i] of `data`. None: as they are."""

    @classmethod
    def of(cls, weight: torch.Tensor) -> StoredMatrix:
        """Take over a weight [n, k]. Float32 whose numbers all fit into two bytes becomes such, exactly."""
        import torch

        weight = weight.detach()
        if weight.dtype == torch.float32:
            for narrow in (torch.bfloat16, torch.float16):
                shorter = weight.to(narrow)
                if torch.equal(shorter.float(), weight):
                    weight = shorter
                    break
        source = Source[str(weight.dtype).removeprefix("torch.").upper()]
        data = weight.contiguous().view(-1).view(torch.uint8).numpy()
        return cls(source, data, *weight.shape)

    @classmethod
    def joined(cls, parts: list[StoredMatrix]) -> StoredMatrix:
        """Put matrices with the same source and k below each other."""
        orders, start = [], 0
        for part in parts:
            order = np.arange(part.n) if part.order is None else part.order
            orders.append(order + start)
            start += part.n
        data = np.concatenate([part.data for part in parts])
        is_plain = all(part.order is None for part in parts)
        return cls(
            parts[0].source, data, start, parts[0].k, None if is_plain else np.concatenate(orders)
        )
