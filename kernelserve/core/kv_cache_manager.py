"""Who holds which KV-cache blocks: finds prefixes, allocates for requests, frees."""

from __future__ import annotations

from collections.abc import Sequence

from kernelserve.core.block_pool import BlockPool
from kernelserve.core.kv_cache_block import KVCacheBlock
from kernelserve.core.request import Request
from kernelserve.protocol import KVCacheMap, PrefixCacheStats

__all__ = ["BlockTable", "KVCacheManager"]

_CACHED, _USED, _SHARED = 1, 2, 3
"""States of a block in a KVCacheMap; 0 is free and empty."""


class BlockTable:
    """The blocks of one running request.

    blocks      | b0 | b1 | b2 | b3 | b4 |
    offered     |##############|              the first num_offered were offered to the prefix cache
    promised                             | + num_promised |    to come, until the prompt is whole
    """

    __slots__ = ("blocks", "num_offered", "num_promised")

    def __init__(self, blocks: list[KVCacheBlock], *, num_offered: int, num_promised: int) -> None:
        self.blocks = blocks
        self.num_offered = num_offered
        self.num_promised = num_promised


class KVCacheManager:
    """Keeps a block table for every running request.

    Full blocks are registered for prefix hits when they are planned, before they are computed: a
    request of the same step may already share them, since every layer writes all K/V of a step
    before it reads any. A block that was registered but will not be computed (its request was
    preempted in the same step) is forgotten again by `free`.

    A request is only admitted if its whole sequence fits beside what is promised to prompts that
    are still being computed; otherwise several long prompts, each half done, would evict each
    other.
    """

    def __init__(
        self, num_blocks: int, *, block_size: int, max_model_len: int, enable_prefix_caching: bool
    ) -> None:
        self.block_size = block_size
        self.pool = BlockPool(num_blocks, enable_caching=enable_prefix_caching)
        self.configured_max_model_len = max_model_len
        self.prefix_cache_stats = PrefixCacheStats()
        self.tables: dict[str, BlockTable] = {}
        self.num_promised_blocks = 0

    @property
    def capacity(self) -> int:
        """Tokens that all blocks together hold."""
        return self.pool.num_total_blocks * self.block_size

    @property
    def max_model_len(self) -> int:
        """Longest sequence: as configured, but never more than one request alone can store.

        A request whose prompt fits but whose max_tokens do not is thus ended with reason `length`
        where the pool ends, rather than preempt itself for ever.
        """
        return min(self.configured_max_model_len, self.capacity)

    @property
    def num_available_blocks(self) -> int:
        """Blocks that a new request could get; below 0 if running requests took promised ones."""
        return self.pool.num_available_blocks - self.num_promised_blocks

    def find_cached_blocks(self, request: Request) -> list[KVCacheBlock]:
        """Return the blocks of the longest cached prefix of a waiting request.

        At least one token is left to compute, since its logits are needed: a hit of everything
        loses its last block.
        """
        if not self.pool.enable_caching or not request.sampling_params.reads_prefix_cache:
            return []
        max_blocks = (request.num_tokens - 1) // self.block_size
        return self.pool.find_prefix(request.block_hashes[:max_blocks])

    def blocks_needed(self, request: Request, hits: Sequence[KVCacheBlock]) -> int:
        """Return how many available blocks the admission of `request` uses up."""
        # A hit block that nobody holds is among the available ones, so taking it costs one too.
        num_held = sum(block.ref_cnt > 0 for block in hits)
        return self._num_blocks(request.num_tokens) - num_held

    def admit(
        self, request: Request, hits: Sequence[KVCacheBlock], num_new_tokens: int
    ) -> list[int] | None:
        """Give a waiting request its hit blocks and room for `num_new_tokens` more.

        Returns its whole block table, or None (nothing changed) if its whole sequence does not fit.
        """
        if self.blocks_needed(request, hits) > self.num_available_blocks:
            return None
        self.pool.touch(hits)  # before allocating, which could evict them
        num_cached_tokens = len(hits) * self.block_size
        end = num_cached_tokens + num_new_tokens
        blocks = [*hits, *self.pool.allocate(self._num_blocks(end) - len(hits))]
        num_promised = self._num_blocks(request.num_tokens) - len(blocks)
        table = BlockTable(blocks, num_offered=len(hits), num_promised=num_promised)
        self.tables[request.request_id] = table
        self.num_promised_blocks += num_promised
        self._offer_full_blocks(request, table, end)
        self._count_lookup(request, num_cached_tokens)
        return [block.block_id for block in blocks]

    def blocks_missing(self, request: Request, num_new_tokens: int) -> int:
        """Return how many blocks a running request lacks for its next tokens; not above 0: none."""
        end = request.num_computed_tokens + num_new_tokens
        return self._num_blocks(end) - self.num_blocks_of(request)

    def allocate_slots(self, request: Request, num_new_tokens: int) -> list[int] | None:
        """Make room for the next tokens of a running request.

        Returns the ids of the blocks added to its table, or None (nothing changed) if there are
        too few.
        """
        table = self.tables[request.request_id]
        end = request.num_computed_tokens + num_new_tokens
        new_block_ids: list[int] = []
        missing = -(-end // self.block_size) - len(table.blocks)
        if missing > 0:
            if missing > self.pool.num_available_blocks:
                return None
            new_blocks = self.pool.allocate(missing)
            table.blocks += new_blocks
            new_block_ids = [block.block_id for block in new_blocks]
            if table.num_promised:
                self._keep_promise(table, missing)
        if end // self.block_size > table.num_offered:
            self._offer_full_blocks(request, table, end)
        return new_block_ids

    def free(self, request: Request, *, forget: bool = False) -> None:
        """Take back the blocks of a request; does nothing if it has none.

        With `forget` its K/V cannot be trusted: blocks that only it holds leave the prefix cache.
        """
        table = self.tables.pop(request.request_id, None)
        if table is None:
            return
        self.num_promised_blocks -= table.num_promised
        num_valid = 0 if forget else request.num_computed_tokens // self.block_size
        for block in table.blocks[num_valid : table.num_offered]:
            if block.ref_cnt == 1:
                self.pool.forget(block)
        # Tail first: it is evicted before the head, without which it is worthless.
        self.pool.free(reversed(table.blocks))

    def num_blocks_of(self, request: Request) -> int:
        """Return how many blocks a running request holds, shared ones included."""
        return len(self.tables[request.request_id].blocks)

    def block_map(self) -> KVCacheMap:
        """Return who holds which block. Its cost grows with the cached and used blocks only."""
        states = bytearray(1 + self.pool.num_total_blocks)
        for block in self.pool.cached.values():
            states[block.block_id] = _CACHED
        block_tables = [[b.block_id for b in table.blocks] for table in self.tables.values()]
        for block_ids in block_tables:
            for block_id in block_ids:
                states[block_id] = _USED if states[block_id] < _USED else _SHARED
        return KVCacheMap(len(states) - 1, bytes(states[1:]), list(self.tables), block_tables)

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _keep_promise(self, table: BlockTable, num_blocks: int) -> None:
        num_kept = min(num_blocks, table.num_promised)
        table.num_promised -= num_kept
        self.num_promised_blocks -= num_kept

    def _offer_full_blocks(self, request: Request, table: BlockTable, end: int) -> None:
        if not self.pool.enable_caching:
            return
        # Capped at num_tokens: what is planned beyond may be drafts that get rejected.
        num_full = min(end, request.num_tokens) // self.block_size
        for index in range(table.num_offered, num_full):
            self.pool.register(table.blocks[index], request.block_hashes[index])
        table.num_offered = max(table.num_offered, num_full)

    def _count_lookup(self, request: Request, num_hits: int) -> None:
        if not self.pool.enable_caching or not request.sampling_params.reads_prefix_cache:
            return
        stats = self.prefix_cache_stats
        if request.num_preemptions:
            stats.preempted_requests += 1
            stats.preempted_queries += request.num_tokens
            stats.preempted_hits += num_hits
        else:
            stats.requests += 1
            stats.queries += request.num_tokens
            stats.hits += num_hits
