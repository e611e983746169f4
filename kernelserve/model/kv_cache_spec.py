"""How much KV cache a model needs, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KVCacheSpec", "LayerSpec"]


@dataclass(slots=True, frozen=True)
class LayerSpec:
    """The K/V of one attention layer."""

    name: str
    """Path of its module in the model."""
    num_heads: int
    num_kv_heads: int
    key_dim: int
    value_dim: int
    sliding_window: int | None = None
    scale: float = 0.0
    """What its scores are multiplied with."""
    logits_soft_cap: float | None = None
    has_sinks: bool = False

    @property
    def elements_per_token(self) -> int:
        """Numbers stored for one token."""
        return self.num_kv_heads * (self.key_dim + self.value_dim)


@dataclass(slots=True, frozen=True)
class KVCacheSpec:
    """All attention layers of a model, in the order in which they run."""

    layers: tuple[LayerSpec, ...]
    bytes_per_element: int

    def bytes_per_block(self, block_size: int) -> int:
        """Return the size of one block over all layers."""
        elements = sum(layer.elements_per_token for layer in self.layers)
        return elements * self.bytes_per_element * block_size
