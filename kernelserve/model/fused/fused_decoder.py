"""A decoder whose layers run in one call of our kernels."""

from __future__ import annotations

import ctypes

import torch

from kernelserve.attention import AttentionMetadata, LayerKVCache
from kernelserve.kernels import FOUR_BITS, CpuKernels
from kernelserve.kernels.structures import (
    AttentionStruct,
    DecoderStruct,
    LayerStruct,
    RequestsStruct,
    StepStruct,
)
from kernelserve.model.fused.decoder_structure import DecoderStructure, LayerStructure
from kernelserve.model.fused.rotary_table import RotaryTable
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
        self._packer = packer
        self._rotary = RotaryTable(structure.rotary)
        self._embedding = packer.matrix(structure.embedding)
        self._head_name = structure.head
        self._head = packer.matrix(structure.embedding if structure.is_tied else structure.head)
        self._norm = structure.norm.weight.detach().float().contiguous()
        self._layers = (LayerStruct * len(specs))()
        for struct, layer, spec in zip(self._layers, structure.layers, specs, strict=True):
            _fill(struct, layer, spec, packer)
        self._decoder = DecoderStruct(
            ctypes.addressof(self._layers),
            len(specs),
            self._embedding.k,
            self._layers[0].mlp_out.k,
            self._rotary.rotary_dim,
            structure.eps,
            structure.activation,
        )
        self._scratch = torch.empty(0)
        self._has_caches = False

    @property
    def weight_bytes(self) -> int:
        """Memory of the packed weights."""
        return self._packer.num_bytes

    def attach(self, kv_caches: list[LayerKVCache], block_size: int) -> None:
        """Use the memory of these caches, one a layer, in float32, laid out as cpu/attention.h says."""
        for struct, kv_cache in zip(self._layers, kv_caches, strict=True):
            struct.keys, struct.values = kv_cache.key.data_ptr(), kv_cache.value.data_ptr()
            struct.attention.block_size = block_size
        self._has_caches = True

    def detach(self) -> None:
        """Forget the caches: their memory may be freed."""
        self._has_caches = False

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
        assert self._has_caches, "a forward pass without a KV cache"
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

    def release_originals(self) -> None:
        """Free the weights that transformers' own modules hold: they cannot run any more."""
        self._packer.release_originals(self._head_name)

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


def _fill(
    struct: LayerStruct, layer: LayerStructure, spec: LayerSpec, packer: WeightPacker
) -> None:
    attention = layer.module.self_attn
    struct.qkv = packer.matrix(*layer.qkv).struct
    struct.attention_out = packer.matrix(layer.attention_out).struct
    struct.gate_up = packer.matrix(*layer.gate_up).struct
    struct.mlp_out = packer.matrix(layer.mlp_out).struct
    struct.attention_norm = packer.vector(layer.module.input_layernorm.weight)
    struct.mlp_norm = packer.vector(layer.module.post_attention_layernorm.weight)
    if hasattr(attention, "q_norm"):
        struct.query_norm = packer.vector(attention.q_norm.weight)
        struct.key_norm = packer.vector(attention.k_norm.weight)
    struct.attention = AttentionStruct(
        heads=spec.num_heads,
        kv_heads=spec.num_kv_heads,
        head_dim=spec.key_dim,
        scale=spec.scale,
        soft_cap=spec.logits_soft_cap or 0.0,
        window=spec.sliding_window or 0,
    )
