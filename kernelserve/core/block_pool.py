"""All blocks of the KV cache: which are free, and which prefix each one holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernelserve.core.free_block_queue import FreeBlockQueue
from kernelserve.core.kv_cache_block import KVCacheBlock

__all__ = ["BlockPool"]


class BlockPool:
    """Gives and takes blocks. A freed block can be hit until it is given out again, evicted.

        total = used + cached + free          (block 0, the null block, is outside of all counts)

        used    held by at least one request
        cached  held by none, but named by a hash
        free    held by none, and empty

    One hash names at most one block, so a block that holds the same as another one that is in use
    stays unnamed.
    """

    def __init__(self, num_blocks: int, *, enable_caching: bool) -> None:
        assert num_blocks >= 2, "a pool needs the null block and one more"
        self.enable_caching = enable_caching
        self.blocks = [KVCacheBlock(block_id) for block_id in range(num_blocks)]
        self.null_block = self.blocks[0]
        """Where unused block table entries point. Never given out, never freed."""
        self.free_queue = FreeBlockQueue()
        for block in self.blocks[1:]:
            self.free_queue.push_back(block)
        self.cached: dict[bytes, KVCacheBlock] = {}
        self.num_cached_blocks = 0

    @property
    def num_total_blocks(self) -> int:
        """Blocks that requests can get."""
        return len(self.blocks) - 1

    @property
    def num_available_blocks(self) -> int:
        """Blocks that no request holds, cached or empty."""
        return self.free_queue.num_blocks

    @property
    def num_used_blocks(self) -> int:
        """Blocks that requests hold."""
        return self.num_total_blocks - self.free_queue.num_blocks

    @property
    def num_free_blocks(self) -> int:
        """Blocks that no request holds and that are empty."""
        return self.free_queue.num_blocks - self.num_cached_blocks

    def find_prefix(self, block_hashes: Sequence[bytes]) -> list[KVCacheBlock]:
        """Return the blocks that hold the longest cached prefix. References do not change."""
        hits: list[KVCacheBlock] = []
        for block_hash in block_hashes:
            block = self.cached.get(block_hash)
            if block is None:
                break
            hits.append(block)
        return hits

    def allocate(self, num_blocks: int) -> list[KVCacheBlock]:
        """Give out blocks, evicting what they held. There must be enough."""
        blocks = []
        for _ in range(num_blocks):
            block = self.free_queue.pop_front()
            if block.block_hash is not None:
                self.num_cached_blocks -= 1
                self._unname(block)
            block.ref_cnt = 1
            blocks.append(block)
        return blocks

    def touch(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Add a reference to blocks that were hit, so that they cannot be evicted."""
        for block in blocks:
            if block.ref_cnt == 0:
                self.free_queue.remove(block)
                self.num_cached_blocks -= 1
            block.ref_cnt += 1

    def register(self, block: KVCacheBlock, block_hash: bytes) -> None:
        """Name a block in use by its contents.

        If a block that nobody uses has the name, it loses it and will be reused first; if that
        block is in use, the new one stays unnamed.
        """
        assert block.ref_cnt > 0
        twin = self.cached.get(block_hash)
        if twin is not None:
            if twin.ref_cnt > 0:
                return
            self.forget(twin)
        block.block_hash = block_hash
        self.cached[block_hash] = block

    def forget(self, block: KVCacheBlock) -> None:
        """Make the contents of a block unfindable."""
        if block.block_hash is None:
            return
        self._unname(block)
        if block.ref_cnt == 0:
            self.num_cached_blocks -= 1
            self.free_queue.remove(block)
            self.free_queue.push_front(block)

    def free(self, blocks: Iterable[KVCacheBlock]) -> None:
        """Drop one reference to each block; those first in `blocks` will be evicted first."""
        for block in blocks:
            assert block.ref_cnt > 0, "block is freed twice"
            block.ref_cnt -= 1
            if block.ref_cnt > 0:
                continue
            if block.block_hash is None:
                self.free_queue.push_front(block)
            else:
                self.free_queue.push_back(block)
                self.num_cached_blocks += 1

    def reset(self) -> bool:
        """Forget all contents. Returns False, and does nothing, while a block is in use."""
        if self.num_used_blocks:
            return False
        for block in self.cached.values():
            block.block_hash = None
        self.cached.clear()
        self.num_cached_blocks = 0
        return True

    def _unname(self, block: KVCacheBlock) -> None:
        assert block.block_hash is not None
        del self.cached[block.block_hash]
        block.block_hash = None
