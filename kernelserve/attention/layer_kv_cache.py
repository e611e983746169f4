"""The paged key and value memory of one attention layer."""

from __future__ import annotations

from typing import NamedTuple

import torch

__all__ = ["LayerKVCache"]


class LayerKVCache(NamedTuple):
    """Keys and values of one layer, in the layout that the backend chose when it allocated them.

    Only the backend looks inside. Slot s is place s % block_size of block s // block_size. Slots
    that no token was written to hold anything, NaN included.
    """

    key: torch.Tensor
    value: torch.Tensor
