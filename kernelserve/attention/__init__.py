"""Attention over a paged KV cache: the backend contract and its implementations."""

from kernelserve.attention.backend import AttentionBackend
from kernelserve.attention.layer_kv_cache import LayerKVCache
from kernelserve.attention.metadata import AttentionMetadata

__all__ = ["AttentionBackend", "AttentionMetadata", "LayerKVCache"]
