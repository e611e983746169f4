from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kernelserve.core.block_hash import ROOT_HASH, BlockHasher, ImageSpan, hash_block


def hashes(token_ids: list[int], block_size: int = 4, **keys: Any) -> list[bytes]:
    found: list[bytes] = []
    BlockHasher(block_size, **keys).extend(found, token_ids)
    return found


def test_only_full_blocks_have_a_hash() -> None:
    assert hashes([1, 2, 3]) == []
    assert len(hashes([1, 2, 3, 4])) == 1
    assert len(hashes(list(range(11)))) == 2


def test_a_hash_is_a_chain_over_parent_and_tokens() -> None:
    first, second = hashes(list(range(8)))
    assert first == hash_block(ROOT_HASH, [0, 1, 2, 3], ())
    assert second == hash_block(first, [4, 5, 6, 7], ())
    assert len({first, second, *hashes([9, 1, 2, 3, 4, 5, 6, 7])}) == 4


def test_large_ids_do_not_run_into_each_other() -> None:
    assert hashes([1, 0, 0, 0]) != hashes([0, 1, 0, 0])
    assert hashes([2**40, 0, 0, 0]) != hashes([2**32, 0, 0, 0])


@settings(derandomize=True, max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 5), st.integers(0, 30))
def test_growing_token_by_token_gives_the_same_hashes(
    token_ids: list[int], block_size: int, cut: int
) -> None:
    hasher = BlockHasher(block_size, cache_salt="s")
    grown: list[bytes] = []
    for end in range(cut, len(token_ids) + 1):
        hasher.extend(grown, token_ids[:end])
    if cut <= len(token_ids):
        assert grown == hashes(token_ids, block_size, cache_salt="s")


def test_an_image_counts_in_the_blocks_that_it_overlaps_and_behind() -> None:
    tokens = [7] * 16
    plain = hashes(tokens)
    cat = hashes(tokens, images=[ImageSpan("cat", 5, 5)])  # in blocks 1 and 2
    dog = hashes(tokens, images=[ImageSpan("dog", 5, 5)])
    moved = hashes(tokens, images=[ImageSpan("cat", 6, 5)])
    assert cat[0] == dog[0] == moved[0] == plain[0]
    for i in (1, 2, 3):
        assert len({plain[i], cat[i], dog[i], moved[i]}) == 4
    assert cat[3] == hash_block(cat[2], tokens[12:], ())


def test_a_salt_and_an_adapter_of_the_same_name_differ() -> None:
    assert hashes([1] * 4, cache_salt="x") != hashes([1] * 4, lora_name="x")
    both = hashes([1] * 4, cache_salt="x", lora_name="y")
    assert both != hashes([1] * 4, cache_salt="y", lora_name="x")
