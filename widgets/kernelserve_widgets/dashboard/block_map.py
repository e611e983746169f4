"""The KV cache as a picture: one cell for each block, in the colour of the request that holds it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernelserve.protocol import KVCacheMap
from kernelserve_widgets.dashboard.inks import Inks
from kernelserve_widgets.dashboard.palette import Indices
from kernelserve_widgets.drawing.theme import Theme
from kernelserve_widgets.history.request_names import RequestNames

__all__ = ["MAP_HEIGHT", "MAP_WIDTH", "BlockMap"]

MAP_WIDTH, MAP_HEIGHT = 400, 186
"""Pixels at scale 1; room for 8,246 cells."""
_CELL_SIZES = range(36, 2, -1)
_MIN_HATCHED_CELL = 5
_FREE, _CACHED, _SHARED, _HATCH, _BACKGROUND, _FIRST_OWNER = 0, 1, 2, 3, 4, 5


class BlockMap:
    """Draws KVCacheMaps. Cells are in the order of the block ids, row by row.

        state                    cell
        free and empty           pale
        cached, free             grey
        used by one request      the colour of the request
        shared by several        dark, hatched when there is room

    With more blocks than cells have room, a cell stands for `blocks_per_cell` neighbours and shows the first one
    that is used, else whether one is cached.
    """

    def __init__(self, theme: Theme, inks: Inks, *, scale: int = 1) -> None:
        self.blocks_per_cell = 1
        self.cells: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)
        """What each cell shows: 0 free, 1 cached, 2 shared, from 5 on the n-th request of the map."""
        self._scale = scale
        self._inks = inks
        self._ink_of_state = [
            inks.of(colour)
            for colour in (
                theme.free_block,
                theme.cached_block,
                theme.shared_block,
                theme.shared_hatch,
                theme.background,
            )
        ]
        self._num_blocks = -1
        self._cell_of_pixel: npt.NDArray[np.intp] = np.zeros((0, 0), np.intp)
        self._hatched: npt.NDArray[np.bool_] = np.zeros((0, 0), np.bool_)

    def draw(self, block_map: KVCacheMap, names: RequestNames) -> Indices:
        """Return the picture as inks [height, width]."""
        if block_map.num_blocks != self._num_blocks:
            self._lay_out(block_map.num_blocks)
        self.cells = self._summarise(self._states(block_map))
        owners = [self._inks.of(names.colour(request_id)) for request_id in block_map.req_ids]
        ink_of_state = np.array(self._ink_of_state + owners[: 256 - _FIRST_OWNER], np.uint8)
        inks = ink_of_state.take(np.append(self.cells, np.uint8(_BACKGROUND)))
        picture = inks.take(self._cell_of_pixel)
        if (self.cells == _SHARED).any():
            shared = picture == self._ink_of_state[_SHARED]
            picture[self._hatched & shared] = self._ink_of_state[_HATCH]
        return picture

    def _states(self, block_map: KVCacheMap) -> npt.NDArray[np.uint8]:
        """Return what to show for each block. Requests beyond the 251st share the last colour."""
        shown = np.frombuffer(block_map.states, np.uint8).copy()
        shared = shown == 3
        for index, table in enumerate(block_map.block_tables):
            shown[np.array(table, np.intp) - 1] = min(_FIRST_OWNER + index, 255)
        shown[shared] = _SHARED
        return shown

    def _summarise(self, shown: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        if self.blocks_per_cell == 1:
            return shown
        size = self.blocks_per_cell
        groups = np.append(shown, np.zeros(-len(shown) % size, np.uint8)).reshape(-1, size)
        used = groups > _CACHED
        first_used = groups[np.arange(len(groups)), used.argmax(axis=1)]
        summary: npt.NDArray[np.uint8] = np.where(used.any(axis=1), first_used, groups.max(axis=1))
        return summary

    def _lay_out(self, num_blocks: int) -> None:
        """Find the largest cells that all have room, and the cell of each pixel."""
        self._num_blocks = num_blocks
        size = next((s for s in _CELL_SIZES if _room(s) >= num_blocks), _CELL_SIZES[-1])
        self.blocks_per_cell = max(1, -(-num_blocks // _room(size)))
        num_cells = -(-num_blocks // self.blocks_per_cell)
        cell, gap = size * self._scale, self._scale
        y, x = np.indices((MAP_HEIGHT * self._scale, MAP_WIDTH * self._scale))
        num_columns = MAP_WIDTH // size
        index = y // cell * num_columns + x // cell
        outside = (x // cell >= num_columns) | (index >= num_cells)
        in_gap = (x % cell >= cell - gap) | (y % cell >= cell - gap)
        self._cell_of_pixel = np.where(outside | in_gap, num_cells, index)
        stripes = (x + y) // self._scale % 4 < 2
        self._hatched = stripes if size >= _MIN_HATCHED_CELL else np.zeros_like(stripes)


def _room(size: int) -> int:
    return (MAP_WIDTH // size) * (MAP_HEIGHT // size)
