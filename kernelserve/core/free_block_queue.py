"""The free blocks as a doubly linked list through the blocks themselves."""

from __future__ import annotations

from collections.abc import Iterator

from kernelserve.core.kv_cache_block import KVCacheBlock

__all__ = ["FreeBlockQueue"]


class FreeBlockQueue:
    """Taken from the front; a block in the middle that is hit again leaves in O(1).

    front                                              back
    | unhashed, worthless | hashed, least recent ... most recent |
    """

    __slots__ = ("_ends", "num_blocks")

    def __init__(self) -> None:
        # One sentinel closes the list to a ring, so that no block is a special case.
        self._ends = KVCacheBlock(-1)
        self._ends.prev_free = self._ends.next_free = self._ends
        self.num_blocks = 0

    def pop_front(self) -> KVCacheBlock:
        """Take the block whose contents matter least. There must be one."""
        block = self._ends.next_free
        assert block is not None
        assert block is not self._ends, "no free block"
        self.remove(block)
        return block

    def push_front(self, block: KVCacheBlock) -> None:
        """Add a block to be used first."""
        first = self._ends.next_free
        assert first is not None
        self._link(self._ends, block, first)

    def push_back(self, block: KVCacheBlock) -> None:
        """Add a block to be used last."""
        last = self._ends.prev_free
        assert last is not None
        self._link(last, block, self._ends)

    def remove(self, block: KVCacheBlock) -> None:
        """Take a block out, wherever it is."""
        before, after = block.prev_free, block.next_free
        assert before is not None, "block is not in the free queue"
        assert after is not None, "block is not in the free queue"
        before.next_free, after.prev_free = after, before
        block.prev_free = block.next_free = None
        self.num_blocks -= 1

    def __iter__(self) -> Iterator[KVCacheBlock]:
        block = self._ends.next_free
        while block is not None and block is not self._ends:
            yield block
            block = block.next_free

    def _link(self, before: KVCacheBlock, block: KVCacheBlock, after: KVCacheBlock) -> None:
        assert block.next_free is None, "block is in the free queue already"
        block.prev_free, block.next_free = before, after
        before.next_free = after.prev_free = block
        self.num_blocks += 1
