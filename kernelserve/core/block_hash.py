"""Names for full KV-cache blocks: a hash chain over everything that their contents depend on.

    hash(block i) = sha256(hash(block i-1), token ids of block i, extra keys of block i)

The parent makes equal blocks after different prefixes differ. Extra keys are the LoRA name, each
image that overlaps the block, and the cache salt. The salt is in the first block only: the chain
carries it on.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from kernelserve.protocol import MultiModalFeatureSpec

__all__ = ["ROOT_HASH", "BlockHasher", "ImageSpan", "hash_block"]

ROOT_HASH = bytes(32)
"""Parent of every first block. Fixed: the cache stays in its process, a salt separates users."""

ExtraKey = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class ImageSpan:
    """Where the placeholder tokens of one image lie in the prompt."""

    identifier: str
    """Content hash of the image: the placeholder ids alone would match any other image. With a mask also its hash:
    it says which of the positions the embeddings go to."""
    offset: int
    length: int

    @classmethod
    def of(cls, feature: MultiModalFeatureSpec) -> ImageSpan:
        """Return the span of one image of a prompt."""
        identifier, mask = feature.mm_hash, feature.position.is_embed
        if mask is not None:
            identifier += sha256(mask).hexdigest()
        return cls(identifier, feature.position.offset, feature.position.length)


def hash_block(parent: bytes, token_ids: Sequence[int], extra_keys: Sequence[ExtraKey]) -> bytes:
    """Return the name of one full block."""
    # All blocks hold equally many ids, 8 bytes each, so the three parts cannot run into each other.
    tokens = array("q", token_ids).tobytes()
    extra = msgspec.msgpack.encode(extra_keys) if extra_keys else b""
    return sha256(parent + tokens + extra).digest()


class BlockHasher:
    """Hashes the blocks of one request, each once, as its tokens become known."""

    __slots__ = ("_cache_salt", "_images", "_lora_name", "block_size")

    def __init__(
        self,
        block_size: int,
        *,
        cache_salt: str | None = None,
        lora_name: str | None = None,
        images: Sequence[ImageSpan] = (),
    ) -> None:
        self.block_size = block_size
        self._cache_salt = cache_salt
        self._lora_name = lora_name
        self._images = images

    def extend(self, block_hashes: list[bytes], token_ids: Sequence[int]) -> None:
        """Append to `block_hashes` the hashes of the newly full blocks of `token_ids`."""
        size = self.block_size
        for start in range(len(block_hashes) * size, len(token_ids) - size + 1, size):
            parent = block_hashes[-1] if block_hashes else ROOT_HASH
            keys = self._extra_keys(start)
            block_hashes.append(hash_block(parent, token_ids[start : start + size], keys))

    def _extra_keys(self, start: int) -> list[ExtraKey]:
        keys: list[ExtraKey] = []
        if self._lora_name is not None:
            keys.append(("lora", self._lora_name))
        end = start + self.block_size
        keys += [
            ("image", image.identifier, image.offset - start)
            for image in self._images
            if image.offset < end and start < image.offset + image.length
        ]
        if start == 0 and self._cache_salt is not None:
            keys.append(("salt", self._cache_salt))
        return keys
