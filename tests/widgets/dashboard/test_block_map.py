"""The picture of the KV cache, read back pixel by pixel."""

from __future__ import annotations

import numpy as np
import pytest

from kernelserve.protocol import KVCacheMap
from kernelserve_widgets.dashboard.block_map import MAP_HEIGHT, MAP_WIDTH, BlockMap
from kernelserve_widgets.dashboard.inks import Inks
from kernelserve_widgets.drawing.theme import THEMES
from kernelserve_widgets.history.request_names import RequestNames

LIGHT = THEMES["light"]
INKS = Inks(LIGHT)


def draw(drawing: BlockMap, block_map: KVCacheMap, names: RequestNames) -> np.ndarray:
    """The picture as RGB."""
    return INKS.colours[drawing.draw(block_map, names)]


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))


def cells_of(picture: np.ndarray, count: int, size: int) -> list[tuple[int, ...]]:
    """The colour of the upper left pixel of each cell."""
    columns = MAP_WIDTH // size
    return [
        tuple(picture[index // columns * size, index % columns * size]) for index in range(count)
    ]


def test_each_block_has_a_cell_in_its_colour():
    names = RequestNames()
    block_map = KVCacheMap(8, bytes([0, 1, 2, 2, 3, 2, 0, 1]), ["a", "b"], [[3, 5, 4], [5, 6]])
    picture = draw(BlockMap(LIGHT, INKS), block_map, names)
    assert picture.shape == (MAP_HEIGHT, MAP_WIDTH, 3)
    free, cached = rgb(LIGHT.free_block), rgb(LIGHT.cached_block)
    cells = cells_of(picture, 8, 36)
    assert cells[:4] == [free, cached, names.colour("a"), names.colour("a")]
    assert cells[4] in (rgb(LIGHT.shared_block), rgb(LIGHT.shared_hatch))
    assert cells[5:] == [names.colour("b"), free, cached]
    shared = picture[:35, 4 * 36 : 5 * 36 - 1].reshape(-1, 3)
    assert {tuple(pixel) for pixel in shared} == {rgb(LIGHT.shared_block), rgb(LIGHT.shared_hatch)}


def test_counts_of_cells_are_those_of_a_real_pool(watch):
    watched = watch(num_blocks=65)
    prefix = list(range(16))
    watched.engine.finish_alone("old", [9] * 30, max_tokens=2)
    for index in range(3):
        watched.engine.submit(f"r{index}", [*prefix, 20 + index, 30], max_tokens=9)
    watched.step(3)
    drawing = BlockMap(LIGHT, INKS)
    drawing.draw(watched.block_map, watched.metrics.history.names)
    stats = watched.stats
    assert int((drawing.cells == 0).sum()) == stats.num_free_blocks > 0
    assert int((drawing.cells == 1).sum()) == stats.num_cached_blocks > 0
    assert int((drawing.cells >= 2).sum()) == stats.num_used_blocks
    assert int((drawing.cells == 2).sum()) == 4  # the prefix


@pytest.mark.parametrize("num_blocks", [1, 63, 999, 4095, 8192, 8246])
def test_up_to_8192_blocks_have_a_cell_each(num_blocks):
    drawing = BlockMap(LIGHT, INKS)
    picture = draw(drawing, KVCacheMap(num_blocks, bytes(num_blocks), [], []), RequestNames())
    assert drawing.blocks_per_cell == 1
    assert len(drawing.cells) == num_blocks
    assert tuple(picture[0, 0]) == rgb(LIGHT.free_block)


def test_larger_pools_share_cells_and_hide_no_used_block():
    num_blocks = 20_000
    states = bytearray(num_blocks)
    states[100] = 1
    states[501] = 2
    names = RequestNames()
    drawing = BlockMap(LIGHT, INKS)
    drawing.draw(KVCacheMap(num_blocks, bytes(states), ["a"], [[502]]), names)
    size = drawing.blocks_per_cell
    assert size == 3
    assert len(drawing.cells) == -(-num_blocks // size)
    assert drawing.cells[100 // size] == 1
    assert drawing.cells[501 // size] == 5
    assert int(drawing.cells.astype(int).sum()) == 6


def test_a_request_keeps_its_colour_when_others_go():
    names = RequestNames()
    drawing = BlockMap(LIGHT, INKS)
    drawing.draw(KVCacheMap(3, bytes([2, 2, 0]), ["a", "b"], [[1], [2]]), names)
    picture = draw(drawing, KVCacheMap(3, bytes([0, 2, 0]), ["b"], [[2]]), names)
    assert cells_of(picture, 3, 36)[1] == names.colour("b") != names.colour("a")


def test_hundreds_of_requests_still_have_cells():
    count = 400
    tables = [[index + 1] for index in range(count)]
    ids = [f"r{index}" for index in range(count)]
    drawing = BlockMap(LIGHT, INKS)
    drawing.draw(KVCacheMap(count, bytes([2]) * count, ids, tables), RequestNames())
    assert int((drawing.cells >= 5).sum()) == count
