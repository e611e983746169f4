"""The encoder cache keeps what a request needs, evicts what nobody does, and tells what it evicted."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kernelserve.core.encoder_cache_manager import EncoderCacheManager


def test_the_oldest_release_is_evicted_first():
    cache = EncoderCacheManager(10)
    for name in "abc":
        cache.allocate("r", name, 3)
    cache.keep_only("r", {"b"})
    assert (cache.num_used_embeds, cache.num_cached_embeds) == (3, 6)
    cache.reference("q", "a")
    cache.release_all("q")  # now c is older
    cache.allocate("q", "d", 3)
    assert cache.take_evicted() == ["c"]
    assert [name for name in "abcd" if cache.has(name)] == ["a", "b", "d"]
    assert cache.take_evicted() == []
    cache.check_integrity()


def test_asking_evicts_nothing():
    cache = EncoderCacheManager(4)
    cache.allocate("r", "a", 4)
    cache.release_all("r")
    assert cache.num_available_embeds == 4
    assert not cache.is_used("a")
    assert cache.has("a")
    assert cache.take_evicted() == []


def test_t47_a_reference_is_of_a_request_not_of_a_use():
    cache = EncoderCacheManager(4)
    cache.allocate("r", "a", 4)
    assert cache.reference("r", "a") is False
    assert cache.reference("q", "a") is True
    cache.release_all("r")
    assert cache.is_used("a")
    cache.release_all("q")
    assert not cache.is_used("a")
    assert (cache.num_queries, cache.num_hits) == (2, 1)


def test_what_was_not_encoded_is_forgotten_whoever_refers_to_it():
    cache = EncoderCacheManager(8)
    cache.allocate("r", "a", 4)
    cache.reference("q", "a")
    cache.allocate("q", "b", 4)
    cache.forget("a")
    cache.forget("unknown")
    assert (cache.has("a"), set(cache.hashes_of("q")), cache.hashes_of("r")) == (False, {"b"}, ())
    assert cache.take_evicted() == ["a"]
    cache.check_integrity()


def test_more_than_there_is_room_for_is_a_bug():
    cache = EncoderCacheManager(4)
    cache.allocate("r", "a", 2)
    with pytest.raises(AssertionError, match="room"):
        cache.allocate("q", "b", 3)


class CacheMachine(RuleBasedStateMachine):
    """Any order of calls keeps the counts right, and never evicts what is needed."""

    @initialize(capacity=st.integers(1, 12))
    def start(self, capacity: int) -> None:
        self.cache = EncoderCacheManager(capacity)
        self.needs: dict[str, set[str]] = {}
        self.there: dict[str, int] = {}

    @rule(req=st.sampled_from("pqr"), name=st.sampled_from("abcdef"))
    def need(self, req: str, name: str) -> None:
        size = "abcdef".index(name) + 1
        if self.cache.has(name):
            assert name in self.there
            free = 0 if self.cache.is_used(name) else size
            if free > self.cache.num_available_embeds:
                return
            self.cache.reference(req, name)
        elif size <= self.cache.num_available_embeds:
            self.cache.allocate(req, name, size)
            self.there[name] = size
        else:
            return
        self.needs.setdefault(req, set()).add(name)
        self.forget_evicted()

    @rule(req=st.sampled_from("pqr"), kept=st.sets(st.sampled_from("abcdef")))
    def keep_only(self, req: str, kept: set[str]) -> None:
        self.cache.keep_only(req, kept)
        self.needs[req] = self.needs.get(req, set()) & kept

    @rule(name=st.sampled_from("abcdef"))
    def forget(self, name: str) -> None:
        self.cache.forget(name)
        for needs in self.needs.values():
            needs.discard(name)
        self.forget_evicted()

    @rule()
    def reset(self) -> None:
        used = set().union(*self.needs.values()) if self.needs else set()
        assert self.cache.reset() == (not used)
        self.forget_evicted()
        assert set(self.there) == used

    def forget_evicted(self) -> None:
        for name in self.cache.take_evicted():
            del self.there[name]

    @invariant()
    def counts_are_right(self) -> None:
        if not hasattr(self, "cache"):
            return
        self.cache.check_integrity()
        used = set().union(*self.needs.values()) if self.needs else set()
        assert all(self.cache.has(name) for name in used)
        assert {name for name in "abcdef" if self.cache.has(name)} == set(self.there)
        assert self.cache.num_used_embeds == sum(self.there[name] for name in used)
        assert sum(self.there.values()) <= self.cache.capacity


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(
    max_examples=80, stateful_step_count=40, derandomize=True, deadline=None
)
