"""The metadata of one block of KV cache."""

from __future__ import annotations

__all__ = ["KVCacheBlock"]


class KVCacheBlock:
    """Room for the K/V of `block_size` tokens, in all layers.

    Invariants: in the free queue exactly when ref_cnt is 0; found under block_hash exactly when
    that is not None.
    """

    __slots__ = ("block_hash", "block_id", "next_free", "prev_free", "ref_cnt")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_cnt = 0
        """Requests that hold the block."""
        self.block_hash: bytes | None = None
        """Name of the contents while they can be hit."""
        self.prev_free: KVCacheBlock | None = None
        self.next_free: KVCacheBlock | None = None

    def __repr__(self) -> str:
        name = self.block_hash.hex()[:8] if self.block_hash else None
        return f"KVCacheBlock({self.block_id}, ref_cnt={self.ref_cnt}, hash={name})"
