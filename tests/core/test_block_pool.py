from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kernelserve.core.block_pool import BlockPool
from kernelserve.core.free_block_queue import FreeBlockQueue
from kernelserve.core.integrity import check_pool
from kernelserve.core.kv_cache_block import KVCacheBlock


def name(number: int) -> bytes:
    return bytes([number]) * 32


def block_ids(blocks: list[KVCacheBlock]) -> list[int]:
    return [block.block_id for block in blocks]


def test_free_queue_takes_from_the_front_and_removes_anywhere() -> None:
    queue = FreeBlockQueue()
    blocks = [KVCacheBlock(i) for i in range(5)]
    for block in blocks[:4]:
        queue.push_back(block)
    queue.push_front(blocks[4])
    queue.remove(blocks[1])
    assert block_ids(list(queue)) == [4, 0, 2, 3]
    assert queue.num_blocks == 4
    assert [queue.pop_front().block_id for _ in range(4)] == [4, 0, 2, 3]
    assert list(queue) == []
    with pytest.raises(AssertionError, match="no free block"):
        queue.pop_front()
    with pytest.raises(AssertionError, match="not in the free queue"):
        queue.remove(blocks[0])


def test_a_block_is_hit_until_it_is_given_out_again() -> None:
    pool = BlockPool(4, enable_caching=True)
    a, b = pool.allocate(2)
    pool.register(a, name(1))
    pool.register(b, name(2))
    pool.free([b, a])
    assert pool.find_prefix([name(1), name(2), name(3)]) == [a, b]
    assert pool.find_prefix([name(3), name(1)]) == []
    assert (pool.num_free_blocks, pool.num_cached_blocks, pool.num_used_blocks) == (1, 2, 0)
    pool.allocate(2)  # the empty one, and b
    assert pool.find_prefix([name(1), name(2)]) == [a]
    check_pool(pool)


def test_unhashed_blocks_are_used_before_cached_ones_and_those_oldest_first() -> None:
    pool = BlockPool(5, enable_caching=True)
    a, b, c, d = pool.allocate(4)
    pool.register(a, name(1))
    pool.register(b, name(2))
    pool.free([b])
    pool.free([c])
    pool.free([a])
    pool.free([d])
    assert block_ids(pool.allocate(4)) == block_ids([d, c, b, a])


def test_a_hit_makes_a_block_young_again() -> None:
    pool = BlockPool(3, enable_caching=True)
    a, b = pool.allocate(2)
    pool.register(a, name(1))
    pool.register(b, name(2))
    pool.free([a, b])
    pool.touch([a])
    assert pool.num_cached_blocks == 1
    pool.free([a])
    assert pool.allocate(1) == [b]


def test_a_shared_block_is_free_when_the_last_one_lets_go() -> None:
    pool = BlockPool(3, enable_caching=True)
    (a,) = pool.allocate(1)
    pool.register(a, name(1))
    pool.touch([a])
    pool.free([a])
    assert pool.num_used_blocks == 1
    pool.free([a])
    assert pool.num_used_blocks == 0
    with pytest.raises(AssertionError, match="freed twice"):
        pool.free([a])


def test_of_two_equal_blocks_one_has_the_name() -> None:
    pool = BlockPool(4, enable_caching=True)
    a, b, c = pool.allocate(3)
    pool.register(a, name(1))
    pool.register(b, name(1))
    assert (a.block_hash, b.block_hash) == (name(1), None)
    pool.free([a])
    pool.register(c, name(1))  # nobody uses a any more
    assert (a.block_hash, c.block_hash) == (None, name(1))
    assert (pool.num_cached_blocks, pool.num_free_blocks) == (0, 1)
    check_pool(pool)


def test_reset_waits_until_nothing_is_used() -> None:
    pool = BlockPool(4, enable_caching=True)
    blocks = pool.allocate(2)
    pool.register(blocks[0], name(1))
    assert pool.reset() is False
    assert pool.find_prefix([name(1)]) == blocks[:1]
    pool.free(blocks)
    assert pool.reset() is True
    assert pool.find_prefix([name(1)]) == []
    assert (pool.num_free_blocks, pool.num_cached_blocks) == (3, 0)
    check_pool(pool)


class BlockPoolMachine(RuleBasedStateMachine):
    """Owners take, share, name and free blocks at random."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(8, enable_caching=True)
        self.owned: list[list[KVCacheBlock]] = []

    @rule(num_blocks=st.integers(1, 4))
    def allocate(self, num_blocks: int) -> None:
        if num_blocks <= self.pool.num_available_blocks:
            blocks = self.pool.allocate(num_blocks)
            taken = [block for other in self.owned for block in other]
            assert not any(block in taken for block in blocks)
            assert self.pool.null_block not in blocks
            self.owned.append(blocks)

    @rule(numbers=st.lists(st.integers(0, 5), min_size=1, max_size=3))
    def hit(self, numbers: list[int]) -> None:
        blocks = self.pool.find_prefix([name(number) for number in numbers])
        if blocks and len(set(block_ids(blocks))) == len(blocks):
            self.pool.touch(blocks)
            self.owned.append(blocks)

    @precondition(lambda self: self.owned)
    @rule(data=st.data(), number=st.integers(0, 5))
    def register(self, data: st.DataObject, number: int) -> None:
        block = data.draw(st.sampled_from(data.draw(st.sampled_from(self.owned))))
        if block.block_hash is None and block.ref_cnt == 1:
            self.pool.register(block, name(number))
            assert name(number) in self.pool.cached

    @precondition(lambda self: self.owned)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.owned) - 1))
        self.pool.free(reversed(self.owned.pop(index)))

    @rule(number=st.integers(0, 5))
    def forget(self, number: int) -> None:
        block = self.pool.cached.get(name(number))
        if block is not None and block.ref_cnt < 2:
            self.pool.forget(block)
            assert name(number) not in self.pool.cached

    @rule()
    def reset(self) -> None:
        assert self.pool.reset() == (not self.owned)

    @invariant()
    def counts_and_references_agree(self) -> None:
        check_pool(self.pool)
        used = {block.block_id for blocks in self.owned for block in blocks}
        assert self.pool.num_used_blocks == len(used)
        for block in self.pool.blocks[1:]:
            assert block.ref_cnt == sum(blocks.count(block) for blocks in self.owned)


TestBlockPoolMachine = BlockPoolMachine.TestCase
TestBlockPoolMachine.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
