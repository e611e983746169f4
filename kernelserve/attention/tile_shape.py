"""How large the tiles of the Triton kernels are."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["TileShape", "power_of_two"]

_FEWEST_ROWS = 16
"""What the matrix units multiply at least."""
_TILE_BYTES = 32 * 1024
"""Of a tile of keys and values. Two, and the queries, fit into the 99 KB that GPUs since 2020 have at least."""
_MOST_KEYS = 64


@dataclass(slots=True, frozen=True)
class TileShape:
    """Sizes of one launch of `attend`; tests/kernels/test_triton_compile.py sees what the compiler makes of them."""

    group_pad: int
    """Rows of the tile for each token: the query heads of a K/V head, rounded up to a power of two."""
    block_m: int
    """Rows of a tile."""
    block_n: int
    """Keys that are looked at together."""
    num_warps: int
    num_stages: int
    has_clear_tiles: bool
    """Whether tiles of keys that all rows see are taken without a mask."""

    @property
    def tokens(self) -> int:
        """Tokens whose rows a tile holds."""
        return self.block_m // self.group_pad

    @classmethod
    def few(cls, group: int, row_elements: int, dtype: torch.dtype) -> TileShape:
        """For decoding, where reading the cache takes the time: small tiles, and several in flight.

        row_elements: of a key and a value together, padded. Of the stages, Triton takes two for the block table, so
        that five keep two tiles of keys and values in flight.
        """
        group_pad = power_of_two(group)
        block_n = _keys(row_elements * dtype.itemsize)
        rows = max(_FEWEST_ROWS, group_pad)
        return cls(group_pad, rows, block_n, num_warps=4, num_stages=5, has_clear_tiles=False)

    @classmethod
    def many(cls, group: int, row_elements: int, dtype: torch.dtype) -> TileShape:
        """For prompts, where the matrix units take the time: as many rows as the registers hold."""
        group_pad = power_of_two(group)
        row_bytes = row_elements * dtype.itemsize
        rows = 128 if row_bytes <= 512 else 64
        if dtype.itemsize == 4:
            rows //= 2  # three products for each, with operands of their own
        return cls(
            group_pad,
            max(rows, group_pad),
            _keys(row_bytes),
            num_warps=8 if rows == 128 else 4,
            num_stages=3,
            has_clear_tiles=True,
        )


def _keys(row_bytes: int) -> int:
    return max(16, min(_MOST_KEYS, _TILE_BYTES // row_bytes))


def power_of_two(count: int) -> int:
    """Return the smallest power of two that is not below `count`."""
    return 1 << (count - 1).bit_length()
