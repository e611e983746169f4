"""A decoder whose layers run in one call of our kernels."""

from __future__ import annotations

import ctypes

import torch

from kernelserve.attention import AttentionMetadata, LayerKVCache
from kernelserve.kernels import FOUR_BITS
from kernelserve.kernels.cpu_kernels import CpuKernels
from kernelserve.kernels.structures import (
    AttentionStruct,
    DecoderStruct,
    LayerStruct,
    RequestsStruct,
    StepStruct,
)
from kernelserve.model.fused.decoder_structure import DecoderStructure, LayerStructure
from kernelserve.model.fused.rotary_table import RotaryTable
from kernelserve.model.fused.shapes import LayerShapes, layer_shapes, outer_shapes
from kernelserve.model.fused.weight_packer import WeightPacker
from kernelserve.model.kv_cache_spec import LayerSpec

__all__ = ["FusedDecoder"]


class FusedDecoder:
    """Packed weights, and the arguments of the kernels. Computes in float32 on the CPU.

    The numbers of a row do not depend on what else is in the step: linear layers add up in one order, and attention
    is computed for each request by itself.
    """

    def __init__(
        self,
        kernels: CpuKernels,
        structure: DecoderStructure,
        specs: tuple[LayerSpec, ...],
        packer: WeightPacker,
    ) -> None:
        self._kernels = kernels
        self._rotary = RotaryTable(structure.rotary)
        self._embedding, self._head = map(packer.matrix, outer_shapes(structure))
        self._norm = packer.vector(structure.norm, structure.hidden_size)
        self._layers = (LayerStruct * len(specs))()
        for struct, layer, spec in zip(self._layers, structure.layers, specs, strict=True):
            _fill_matrices(struct, layer_shapes(structure, layer, spec), packer)
            _fill_norms(struct, layer, structure.hidden_size, spec.key_dim, packer)
            struct.attention = _attention_of(spec)
        self._decoder = DecoderStruct(
            ctypes.addressof(self._layers),
            len(specs),
            structure.hidden_size,
            structure.intermediate_size,
            self._rotary.rotary_dim,
            structure.eps,
            structure.activation,
        )
        self._weights = packer.held
        """What the structures point to."""
        self._scratch = torch.empty(0)
        self._kv_caches: list[LayerKVCache] = []

    @property
    def weight_bytes(self) -> int:
        """Memory of the packed weights."""
        return sum(weight.nbytes for weight in self._weights)

    def attach(self, kv_caches: list[LayerKVCache], block_size: int) -> None:
        """Use the memory of these caches, one a layer, in float32, laid out as cpu/attention.h says."""
        for struct, kv_cache in zip(self._layers, kv_caches, strict=True):
            struct.keys, struct.values = kv_cache.key.data_ptr(), kv_cache.value.data_ptr()
            struct.attention.block_size = block_size
        self._kv_caches = kv_caches

    def detach(self) -> None:
        """Let go of the caches."""
        self._kv_caches = []

    def embed(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return the embeddings [T, hidden] of tokens [T]."""
        return self._kernels.read_rows(self._embedding, input_ids)

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        metadata: AttentionMetadata,
        logits_indices: torch.Tensor,
        inputs_embeds: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return logits [R, vocab]; the arguments are those of LoadedModel.forward."""
        assert self._kv_caches, "a forward pass without a KV cache"
        hidden_states = self.embed(input_ids) if inputs_embeds is None else inputs_embeds.clone()
        self._rotary.cover(metadata.max_seq_len)
        self._kernels.decode(self._decoder, self._step(hidden_states, positions, metadata))
        normed = self._kernels.norm_rows(
            hidden_states, logits_indices, self._norm, self._decoder.eps
        )
        return self._kernels.linear(normed, self._head)

    def round_inputs(self) -> bool:
        """Multiply 4-bit weights with inputs rounded to 8 bits, from now on. False: no layer has such weights."""
        has_4_bits = any(struct.qkv.format == FOUR_BITS for struct in self._layers)
        self._decoder.rounds_inputs = int(has_4_bits)
        return has_4_bits

    def _step(
        self, hidden_states: torch.Tensor, positions: torch.Tensor, metadata: AttentionMetadata
    ) -> StepStruct:
        """The arguments of a step, valid as long as what they were made of."""
        rows = len(hidden_states)
        wanted = self._kernels.scratch_floats(self._decoder, rows)
        if self._scratch.numel() < wanted:
            self._scratch = torch.empty(wanted)
        requests = RequestsStruct(
            metadata.query_start_loc.data_ptr(),
            metadata.seq_lens.data_ptr(),
            metadata.block_table.data_ptr(),
            metadata.block_table.stride(0),
            metadata.num_reqs,
        )
        return StepStruct(
            requests,
            rows,
            self._rotary.cosines.data_ptr(),
            self._rotary.sines.data_ptr(),
            positions.data_ptr(),
            metadata.slot_mapping.data_ptr(),
            hidden_states.data_ptr(),
            self._scratch.data_ptr(),
        )


def _fill_matrices(struct: LayerStruct, shapes: LayerShapes, packer: WeightPacker) -> None:
    struct.qkv = packer.matrix(shapes.qkv).struct
    struct.attention_out = packer.matrix(shapes.attention_out).struct
    struct.gate_up = packer.matrix(shapes.gate_up).struct
    struct.mlp_out = packer.matrix(shapes.mlp_out).struct


def _fill_norms(
    struct: LayerStruct, layer: LayerStructure, hidden: int, head_dim: int, packer: WeightPacker
) -> None:
    struct.attention_norm = packer.vector(layer.attention_norm, hidden).data_ptr()
    struct.mlp_norm = packer.vector(layer.mlp_norm, hidden).data_ptr()
    if layer.has_head_norms:
        struct.query_norm, struct.key_norm = (
            packer.vector(path, head_dim).data_ptr() for path in layer.head_norms
        )


def _attention_of(spec: LayerSpec) -> AttentionStruct:
    return AttentionStruct(
        heads=spec.num_heads,
        kv_heads=spec.num_kv_heads,
        head_dim=spec.key_dim,
        scale=spec.scale,
        soft_cap=spec.logits_soft_cap or 0.0,
        window=spec.sliding_window or 0,
    )
