"""What the kernels must know of a decoder besides its numbers: plain data, made of paths in the model and sizes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DecoderStructure", "LayerStructure", "RotaryStructure"]


@dataclass(slots=True, frozen=True)
class LayerStructure:
    """Where the parts of one layer are."""

    name: str
    """Path of the layer in the model."""
    has_head_norms: bool
    """Whether queries and keys are normed, head by head."""

    @property
    def qkv(self) -> list[str]:
        """Paths of the projections to queries, keys and values."""
        return [f"{self.name}.self_attn.{part}_proj" for part in "qkv"]

    @property
    def gate_up(self) -> list[str]:
        """Paths of the gate and what it is multiplied with."""
        return [f"{self.name}.mlp.{part}_proj" for part in ("gate", "up")]

    @property
    def attention_out(self) -> str:
        """Path of the projection behind the attention."""
        return f"{self.name}.self_attn.o_proj"

    @property
    def mlp_out(self) -> str:
        """Path of the projection at the end."""
        return f"{self.name}.mlp.down_proj"

    @property
    def linears(self) -> list[str]:
        """Paths of all linear modules."""
        return [*self.qkv, self.attention_out, *self.gate_up, self.mlp_out]

    @property
    def attention_norm(self) -> str:
        """Path of the norm before the attention."""
        return f"{self.name}.input_layernorm"

    @property
    def mlp_norm(self) -> str:
        """Path of the norm before the MLP."""
        return f"{self.name}.post_attention_layernorm"

    @property
    def head_norms(self) -> list[str]:
        """Paths of the norms of queries and keys."""
        return [f"{self.name}.self_attn.{part}_norm" for part in "qk"]


@dataclass(slots=True, frozen=True)
class RotaryStructure:
    """Position p turns pair i of a head by p * inv_freq[i]."""

    inv_freq: tuple[float, ...]
    """Each a float32."""
    scaling: float
    """What cosines and sines are multiplied with."""


@dataclass(slots=True, frozen=True)
class DecoderStructure:
    """A decoder of equal layers: norm, attention with rotary positions, norm, gated MLP, each added to its input."""

    layers: tuple[LayerStructure, ...]
    hidden_size: int
    intermediate_size: int
    num_embeddings: int
    num_outputs: int
    """Rows of the output head."""
    norm: str
    """Path of the last norm."""
    embedding: str
    """Path of the embedding."""
    head: str
    """Path of the output head."""
    is_tied: bool
    """Whether the head shares the embedding's weight."""
    biased: frozenset[str]
    """Paths of the linear modules that have a bias."""
    rotary: RotaryStructure
    eps: float
    activation: int
    """Its number in cpu/pointwise.h."""

    @property
    def matrices(self) -> list[str]:
        """Paths of all modules whose weights are matrices."""
        return [
            self.embedding,
            self.head,
            *(path for layer in self.layers for path in layer.linears),
        ]
