"""The client's cache of processed images."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernelserve.multimodal.processor_cache import ProcessorCache
from kernelserve.multimodal.processor_messages import ProcessedImage
from kernelserve.wire import WireArray


def image(size: int) -> ProcessedImage:
    return ProcessedImage("x", {"pixel_values": WireArray("uint8", (size,), bytes(size))})


def test_what_was_used_longest_ago_goes_first():
    cache = ProcessorCache(10)
    for name in "abc":
        cache.put(name, image(3))
    assert cache.get("a") is not None
    cache.put("d", image(3))
    assert [name for name in "abcd" if cache.get(name)] == ["a", "c", "d"]


def test_a_cache_of_no_size_keeps_nothing():
    cache = ProcessorCache(0)
    cache.put("a", image(1))
    assert cache.get("a") is None


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 12))), st.integers(0, 20))
def test_it_never_holds_more_than_its_limit(puts, limit):
    cache = ProcessorCache(limit)
    last: dict[str, int] = {}
    for name, size in puts:
        cache.put(name, image(size))
        if size <= limit:
            last[name] = size
            assert cache.get(name) is not None
        kept = {known: found for known in last if (found := cache.get(known))}
        assert cache.num_bytes == sum(found.num_bytes for found in kept.values()) <= limit
        assert len(cache) == len(kept)
        assert all(last[known] == found.num_bytes for known, found in kept.items())
