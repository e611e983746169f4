"""Proves that no block and no request is lost, doubly owned or left behind."""

from __future__ import annotations

from collections import Counter

from kernelserve.core.block_pool import BlockPool
from kernelserve.core.kv_cache_manager import KVCacheManager
from kernelserve.core.request import RequestStatus
from kernelserve.core.scheduler_state import SchedulerState

__all__ = ["check_kv_cache", "check_pool", "check_requests"]


def check_pool(pool: BlockPool) -> None:
    """Raise AssertionError unless free queue, counts and hash map agree with the blocks."""
    queued_ids: set[int] = set()
    num_cached = 0
    for block in pool.free_queue:
        assert block.block_id not in queued_ids, f"{block} is queued twice"
        queued_ids.add(block.block_id)
        num_cached += block.block_hash is not None
        before, after = block.prev_free, block.next_free
        assert before is not None, f"{block} is linked one way"
        assert after is not None, f"{block} is linked one way"
        assert before.next_free is block is after.prev_free, f"{block} is linked one way"
    assert len(queued_ids) == pool.num_available_blocks, "free queue is miscounted"
    assert num_cached == pool.num_cached_blocks, "cached blocks are miscounted"

    num_named = 0
    for block in pool.blocks[1:]:
        assert block.ref_cnt >= 0, f"{block} has a negative reference count"
        idle = block.ref_cnt == 0
        assert idle == (block.block_id in queued_ids), f"{block} is wrongly in or out of the queue"
        if block.block_hash is not None:
            num_named += 1
            assert pool.cached.get(block.block_hash) is block, f"{block} is not found by its hash"
    assert num_named == len(pool.cached), "hash map holds a foreign block"

    null = pool.null_block
    assert (null.ref_cnt, null.block_hash, null.next_free) == (0, None, None), "null block is used"
    total = pool.num_free_blocks + pool.num_cached_blocks + pool.num_used_blocks
    assert total == pool.num_total_blocks == len(pool.blocks) - 1, "block counts do not add up"


def check_kv_cache(manager: KVCacheManager) -> None:
    """Raise AssertionError unless the block tables agree with the pool."""
    pool = manager.pool
    check_pool(pool)
    owners: Counter[int] = Counter()
    for req_id, table in manager.tables.items():
        block_ids = [block.block_id for block in table.blocks]
        assert len(set(block_ids)) == len(block_ids), f"{req_id} holds a block twice"
        assert table.num_promised >= 0
        assert table.num_offered <= len(block_ids)
        owners.update(block_ids)
    assert pool.null_block.block_id not in owners, "null block is owned"
    promised = sum(table.num_promised for table in manager.tables.values())
    assert promised == manager.num_promised_blocks, "promised blocks are miscounted"
    for block in pool.blocks[1:]:
        num_owners = owners.get(block.block_id, 0)
        assert block.ref_cnt == num_owners, f"{block} has {num_owners} owners"
        assert num_owners < 2 or block.block_hash is not None, f"{block} is shared without a hash"


def check_requests(state: SchedulerState) -> None:
    """Raise AssertionError unless live requests are in one place and running ones have blocks."""
    manager = state.kv_cache_manager
    state.encoder_cache.check_integrity()
    check_kv_cache(manager)
    running = [request.request_id for request in state.running]
    waiting = [request.request_id for request in state.waiting]
    assert len(waiting) == len(state.waiting), "waiting requests are miscounted"
    assert Counter(running + waiting) == Counter(state.requests.keys()), (
        "a request is lost or doubled"
    )
    assert set(manager.tables) == set(running), "block tables and running requests differ"
    for request in state.running:
        assert request.status is RequestStatus.RUNNING, f"{request} is among the running ones"
        num_blocks = manager.num_blocks_of(request)
        assert 0 <= request.num_computed_tokens <= request.num_tokens, f"{request} is miscounted"
        assert request.num_computed_tokens <= num_blocks * manager.block_size, (
            f"{request} lacks blocks"
        )
        for mm_hash in state.encoder_cache.hashes_of(request.request_id):
            assert any(f.mm_hash == mm_hash for f in request.mm_features), (
                f"{request} holds {mm_hash}"
            )
    for request in state.waiting:
        held = state.encoder_cache.hashes_of(request.request_id)
        assert not held, f"{request} waits and holds images"
        expected = RequestStatus.PREEMPTED if request.num_preemptions else RequestStatus.WAITING
        assert request.status is expected, f"{request} is among the waiting ones"
        assert request.num_computed_tokens == 0, f"{request} waits with computed tokens"
