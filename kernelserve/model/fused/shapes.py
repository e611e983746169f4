"""Which matrices a decoder has, and which of them are packed below each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernelserve.model.fused.decoder_structure import DecoderStructure, LayerStructure
from kernelserve.model.kv_cache_spec import LayerSpec

__all__ = ["LayerShapes", "Shapes", "layer_shapes", "matrix_shapes", "outer_shapes"]

Shapes = Mapping[str, tuple[int, int]]
"""Paths of modules -> outputs and inputs of each."""


@dataclass(slots=True, frozen=True)
class LayerShapes:
    """The four matrices of a layer."""

    qkv: Shapes
    attention_out: Shapes
    gate_up: Shapes
    mlp_out: Shapes


def layer_shapes(
    structure: DecoderStructure, layer: LayerStructure, spec: LayerSpec
) -> LayerShapes:
    """Return the matrices of one layer."""
    hidden, inner = structure.hidden_size, structure.intermediate_size
    queries, keys = spec.num_heads * spec.key_dim, spec.num_kv_heads * spec.key_dim
    q, k, v = layer.qkv
    return LayerShapes(
        qkv={q: (queries, hidden), k: (keys, hidden), v: (keys, hidden)},
        attention_out={layer.attention_out: (hidden, queries)},
        gate_up=dict.fromkeys(layer.gate_up, (inner, hidden)),
        mlp_out={layer.mlp_out: (hidden, inner)},
    )


def outer_shapes(structure: DecoderStructure) -> tuple[Shapes, Shapes]:
    """Return the embedding and the head, which are the same if they are tied."""
    embedding = {structure.embedding: (structure.num_embeddings, structure.hidden_size)}
    if structure.is_tied:
        return embedding, embedding
    return embedding, {structure.head: (structure.num_outputs, structure.hidden_size)}


def matrix_shapes(structure: DecoderStructure, specs: tuple[LayerSpec, ...]) -> Iterator[Shapes]:
    """Yield everything that is packed as one, each once."""
    embedding, head = outer_shapes(structure)
    yield embedding
    if head is not embedding:
        yield head
    for layer, spec in zip(structure.layers, specs, strict=True):
        shapes = layer_shapes(structure, layer, spec)
        yield from (shapes.qkv, shapes.attention_out, shapes.gate_up, shapes.mlp_out)
