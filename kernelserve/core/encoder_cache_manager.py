"""Which encoded images the worker keeps, and for whom."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["EncoderCacheManager"]


class _Entry:
    """One encoded image."""

    __slots__ = ("num_embeds", "req_ids")

    def __init__(self, num_embeds: int) -> None:
        self.num_embeds = num_embeds
        self.req_ids: set[str] = set()
        """The requests that still need it."""


class EncoderCacheManager:
    """Keeps account of encoder outputs by content hash; the worker holds the outputs themselves.

        absent -- allocate --> used -- last release --> cached -- allocate of another --> absent
                                ^------- reference ------'

    The capacity is counted in embeddings. A reference belongs to a request, not to a use: the same
    image twice in one prompt is one reference. Cached entries are evicted oldest release first, and
    only by `allocate`: asking changes nothing. What was evicted is told to the worker with the next
    plan, before anything new is encoded.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.num_used_embeds = 0
        """Of entries that a request needs."""
        self.num_cached_embeds = 0
        """Of entries that nobody needs."""
        self.num_queries = 0
        """Images that a request came to need, since the beginning."""
        self.num_hits = 0
        """Those of them that were there."""
        self._entries: dict[str, _Entry] = {}
        self._cached: dict[str, None] = {}
        """Hashes of the entries that nobody needs, oldest release first."""
        self._held: dict[str, set[str]] = {}
        """Request -> the hashes that it refers to."""
        self._evicted: list[str] = []

    @property
    def num_available_embeds(self) -> int:
        """Room for what a request needs: free, or cached and thus evictable."""
        return self.capacity - self.num_used_embeds

    def has(self, mm_hash: str) -> bool:
        """Whether the output is there, or will be after the step that is being planned."""
        return mm_hash in self._entries

    def is_used(self, mm_hash: str) -> bool:
        """Whether some request refers to it: then another reference takes no room."""
        return mm_hash in self._entries and mm_hash not in self._cached

    def hashes_of(self, req_id: str) -> Collection[str]:
        """Return what a request refers to."""
        return self._held.get(req_id, ())

    def reference(self, req_id: str, mm_hash: str) -> bool:
        """Let a request need an entry that is there. Return whether it is a new reference."""
        entry = self._entries[mm_hash]
        if req_id in entry.req_ids:
            return False
        if mm_hash in self._cached:
            del self._cached[mm_hash]
            self.num_cached_embeds -= entry.num_embeds
            self.num_used_embeds += entry.num_embeds
        entry.req_ids.add(req_id)
        self._held.setdefault(req_id, set()).add(mm_hash)
        self.num_queries += 1
        self.num_hits += 1
        return True

    def allocate(self, req_id: str, mm_hash: str, num_embeds: int) -> None:
        """Make room for an output that this step will bring; at most `num_available_embeds`."""
        assert mm_hash not in self._entries, f"{mm_hash} is there already"
        assert 0 < num_embeds <= self.num_available_embeds, "more embeddings than there is room for"
        while self.num_used_embeds + self.num_cached_embeds + num_embeds > self.capacity:
            self._drop(next(iter(self._cached)))
        entry = self._entries[mm_hash] = _Entry(num_embeds)
        entry.req_ids.add(req_id)
        self._held.setdefault(req_id, set()).add(mm_hash)
        self.num_used_embeds += num_embeds
        self.num_queries += 1

    def keep_only(self, req_id: str, needed: Collection[str]) -> None:
        """Release what a request refers to but for `needed`."""
        held = self._held.get(req_id)
        if held is None:
            return
        for mm_hash in sorted(held.difference(needed)):
            self._release(req_id, mm_hash)
        held.intersection_update(needed)
        if not held:
            del self._held[req_id]

    def release_all(self, req_id: str) -> None:
        """Release everything that a request refers to."""
        self.keep_only(req_id, ())

    def forget(self, mm_hash: str) -> None:
        """Drop an entry that has no output, whoever refers to it. Unknown hashes are ignored."""
        entry = self._entries.get(mm_hash)
        if entry is None:
            return
        for req_id in list(entry.req_ids):
            self.keep_only(req_id, self._held[req_id] - {mm_hash})
        self._drop(mm_hash)

    def reset(self) -> bool:
        """Drop all entries that nobody needs; return whether none is left."""
        for mm_hash in list(self._cached):
            self._drop(mm_hash)
        return not self._entries

    @property
    def has_evicted(self) -> bool:
        """Whether something was dropped that the worker has not heard of."""
        return bool(self._evicted)

    def take_evicted(self) -> list[str]:
        """Return the hashes that were dropped since the last call, and forget them."""
        evicted, self._evicted = self._evicted, []
        return evicted

    def check_integrity(self) -> None:
        """Raise AssertionError unless counts, references and entries agree."""
        used = cached = 0
        for mm_hash, entry in self._entries.items():
            assert entry.num_embeds > 0
            assert bool(entry.req_ids) != (mm_hash in self._cached), f"{mm_hash} is used and cached"
            used += entry.num_embeds if entry.req_ids else 0
            cached += 0 if entry.req_ids else entry.num_embeds
            for req_id in entry.req_ids:
                assert mm_hash in self._held[req_id], f"{req_id} does not know of {mm_hash}"
        assert set(self._cached) <= set(self._entries), "an entry that is gone is evictable"
        assert (used, cached) == (self.num_used_embeds, self.num_cached_embeds), "miscounted"
        assert used + cached <= self.capacity, "more embeddings than the cache holds"
        for req_id, held in self._held.items():
            assert held, f"{req_id} refers to nothing"
            assert all(req_id in self._entries[mm_hash].req_ids for mm_hash in held)

    def _release(self, req_id: str, mm_hash: str) -> None:
        entry = self._entries[mm_hash]
        entry.req_ids.remove(req_id)
        if not entry.req_ids:
            self._cached[mm_hash] = None
            self.num_used_embeds -= entry.num_embeds
            self.num_cached_embeds += entry.num_embeds

    def _drop(self, mm_hash: str) -> None:
        entry = self._entries.pop(mm_hash)
        del self._cached[mm_hash]
        self.num_cached_embeds -= entry.num_embeds
        self._evicted.append(mm_hash)
