from __future__ import annotations

import time

import pytest

from kernelserve.core.integrity import check_kv_cache
from kernelserve.core.kv_cache_manager import KVCacheManager
from kernelserve.core.request import Request
from kernelserve.sampling_params import SamplingParams


def make_manager(num_blocks: int = 11, max_model_len: int = 1000) -> KVCacheManager:
    return KVCacheManager(
        num_blocks, block_size=4, max_model_len=max_model_len, enable_prefix_caching=True
    )


def make_request(request_id: str, num_tokens: int, first: int = 0) -> Request:
    tokens = list(range(first, first + num_tokens))
    return Request(request_id, tokens, SamplingParams(), block_size=4)


def make_request_of(request_id: str, num_tokens: int, first: int) -> Request:
    tokens = list(range(first, first + num_tokens))
    return Request(request_id, tokens, SamplingParams(), block_size=1)


def test_one_request_alone_always_fits() -> None:
    assert make_manager(num_blocks=11).max_model_len == 40
    assert make_manager(max_model_len=30).max_model_len == 30


def test_admission_gives_the_whole_table_and_growth_only_new_blocks() -> None:
    manager = make_manager()
    request = make_request("a", 14)
    table = manager.admit(request, [], 6)
    assert table is not None
    assert len(table) == 2
    request.num_computed_tokens = 6
    assert manager.allocate_slots(request, 2) == []
    request.num_computed_tokens = 8
    more = manager.allocate_slots(request, 6)
    assert more is not None
    assert len(more) == 2
    assert not set(more) & set(table)
    check_kv_cache(manager)


def test_a_refused_admission_changes_nothing() -> None:
    manager = make_manager(num_blocks=4)
    assert manager.admit(make_request("a", 8), [], 8) is not None
    before = (
        manager.num_available_blocks,
        dict(manager.tables),
        manager.prefix_cache_stats.queries,
    )
    other = make_request("b", 16)
    assert manager.admit(other, manager.find_cached_blocks(other), 4) is None
    after = (manager.num_available_blocks, dict(manager.tables), manager.prefix_cache_stats.queries)
    assert before == after
    check_kv_cache(manager)


def test_a_refused_growth_changes_nothing() -> None:
    manager = make_manager(num_blocks=3)
    request = make_request("a", 8)
    manager.admit(request, [], 8)
    request.num_computed_tokens = 8
    assert manager.allocate_slots(request, 1) is None
    assert manager.num_blocks_of(request) == 2
    assert manager.blocks_missing(request, 1) == 1
    check_kv_cache(manager)


def test_promised_blocks_are_counted_until_the_prompt_is_whole_or_gone() -> None:
    manager = make_manager()
    a, b = make_request("a", 20), make_request("b", 12, first=100)
    manager.admit(a, [], 4)
    manager.admit(b, [], 4)
    assert manager.num_promised_blocks == 4 + 2
    assert manager.num_available_blocks == 10 - 5 - 3
    a.num_computed_tokens = 4
    manager.allocate_slots(a, 16)
    assert manager.num_promised_blocks == 2
    manager.free(b)
    assert manager.num_promised_blocks == 0
    assert manager.num_available_blocks == 5
    check_kv_cache(manager)


def test_shared_blocks_need_no_room() -> None:
    manager = make_manager(num_blocks=5)
    a, b = make_request("a", 12), make_request("b", 13)
    manager.admit(a, [], 12)
    hits = manager.find_cached_blocks(b)
    assert len(hits) == 3
    assert manager.blocks_needed(b, hits) == 1
    assert manager.admit(b, hits, 1) is not None
    check_kv_cache(manager)
    manager.free(a)
    manager.free(b)
    check_kv_cache(manager)
    assert manager.pool.num_used_blocks == 0


def test_free_forgets_blocks_that_were_not_computed() -> None:
    manager = make_manager()
    request = make_request("a", 12)
    manager.admit(request, [], 12)
    request.num_computed_tokens = 5
    manager.free(request)
    assert list(manager.pool.cached) == request.block_hashes[:1]
    check_kv_cache(manager)


def test_free_with_forget_keeps_what_others_hold() -> None:
    manager = make_manager()
    a, b, c = make_request("a", 9), make_request("b", 5), make_request("c", 5)
    manager.admit(a, [], 9)
    a.num_computed_tokens = 9
    for other in (b, c):
        manager.admit(other, manager.find_cached_blocks(other), 1)
    manager.free(a, forget=True)
    assert list(manager.pool.cached) == a.block_hashes[:1]
    check_kv_cache(manager)


def test_free_of_a_request_without_blocks_is_nothing() -> None:
    manager = make_manager()
    manager.free(make_request("a", 4))
    check_kv_cache(manager)


@pytest.mark.parametrize("skip", [True, False])
def test_reading_the_cache_can_be_declined(skip: bool) -> None:
    manager = make_manager()
    manager.admit(make_request("a", 9), [], 9)
    params = SamplingParams(skip_reading_prefix_cache=skip)
    request = Request("b", list(range(9)), params, block_size=4)
    assert len(manager.find_cached_blocks(request)) == (0 if skip else 2)


def test_prompt_logprobs_decline_it_by_themselves() -> None:
    manager = make_manager()
    manager.admit(make_request("a", 9), [], 9)
    request = Request("b", list(range(9)), SamplingParams(prompt_logprobs=1), block_size=4)
    assert manager.find_cached_blocks(request) == []


def test_the_block_map_tells_free_cached_used_and_shared_blocks() -> None:
    manager = make_manager()
    first, second, third = make_request("a", 10), make_request("b", 10), make_request("c", 5, 50)
    assert manager.admit(first, [], 10) is not None
    table = manager.admit(second, manager.find_cached_blocks(second), 2)
    assert manager.admit(third, [], 5) is not None
    third.num_computed_tokens = 5
    manager.free(third)
    block_map = manager.block_map()
    assert block_map.num_blocks == len(block_map.states) == 10
    assert block_map.req_ids == ["a", "b"]
    assert block_map.block_tables[1] == table
    shared = set(block_map.block_tables[0]) & set(block_map.block_tables[1])
    assert len(shared) == 2
    states = {block_id: block_map.states[block_id - 1] for block_id in range(1, 11)}
    assert {block_id for block_id, state in states.items() if state == 3} == shared
    assert sorted(states.values()) == [0, 0, 0, 0, 0, 1, 2, 2, 3, 3]


def test_the_map_of_a_full_pool_is_cheap() -> None:
    manager = KVCacheManager(4097, block_size=1, max_model_len=10_000, enable_prefix_caching=True)
    for index in range(4):
        assert manager.admit(make_request_of(f"r{index}", 1024, index * 2000), [], 1024)
    times = []
    for _ in range(20):
        began = time.perf_counter()
        block_map = manager.block_map()
        times.append(time.perf_counter() - began)
    assert block_map.states == bytes([2]) * 4096
    assert min(times) < 0.003
