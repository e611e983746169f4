"""A decoder whose layers run on a GPU in few launches: merged matrices, and Triton kernels for what is between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from kernelserve.attention import AttentionMetadata, LayerKVCache
from kernelserve.attention.tile_shape import power_of_two
from kernelserve.attention.triton_backend import TritonAttention, launching_on
from kernelserve.kernels.gpu.gate import gate
from kernelserve.kernels.gpu.norm import add_norm
from kernelserve.model.fused.decoder_structure import DecoderStructure, LayerStructure
from kernelserve.model.fused.rotary_table import RotaryTable
from kernelserve.model.kv_cache_spec import LayerSpec

__all__ = ["GpuDecoder"]

_GATE_COLUMNS = 1024


class GpuDecoder:
    """Takes the place of the forward pass of `module`, whose weights it shares: merged ones become views there."""

    def __init__(
        self,
        module: Any,
        structure: DecoderStructure,
        specs: tuple[LayerSpec, ...],
        backend: TritonAttention,
    ) -> None:
        self._structure, self._backend = structure, backend
        self._embedding = module.get_submodule(structure.embedding)
        self._head = module.get_submodule(structure.head)
        self._norm = module.get_submodule(structure.norm).weight
        self._device: torch.device = self._norm.device
        self._layers = [
            _Layer.of(module, layer, spec)
            for layer, spec in zip(structure.layers, specs, strict=True)
        ]
        self._table = RotaryTable(structure.rotary)
        self._cosines = self._table.cosines.to(self._device)
        self._sines = self._table.sines.to(self._device)
        self._kv_caches: list[LayerKVCache] = []

    @property
    def weight_bytes(self) -> int:
        """Memory of weights that the module does not count."""
        return 0

    def attach(self, kv_caches: list[LayerKVCache], _block_size: int, /) -> None:
        """Use the memory of these caches, one a layer, as `backend` has made them."""
        self._kv_caches = kv_caches

    def detach(self) -> None:
        """Let go of the caches."""
        self._kv_caches = []

    def round_inputs(self) -> bool:
        """False: no layer has weights of 4 bits."""
        return False

    def embed(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return the embeddings [T, hidden] of tokens [T]."""
        rows: torch.Tensor = self._embedding(input_ids)
        return rows

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
        self._cover(metadata.max_seq_len)
        rows = self.embed(input_ids) if inputs_embeds is None else inputs_embeds.contiguous()
        stream = torch.empty_like(rows)  # what the layers add to
        with launching_on(self._device):
            for number, layer in enumerate(self._layers):
                normed = self._add_norm(rows, stream, layer.attention_norm, is_first=number == 0)
                rows = self._attend(layer, normed, positions, metadata, self._kv_caches[number])
                normed = self._add_norm(rows, stream, layer.mlp_norm)
                rows = layer.mlp_out(self._gate(layer.gate_up(normed)))
            last = self._add_norm(rows[logits_indices], stream[logits_indices], self._norm)
        logits: torch.Tensor = self._head(last)
        return logits

    def _attend(
        self,
        layer: _Layer,
        normed: torch.Tensor,
        positions: torch.Tensor,
        metadata: AttentionMetadata,
        kv_cache: LayerKVCache,
    ) -> torch.Tensor:
        spec = layer.spec
        query = self._backend.rotate_and_write(
            layer.qkv(normed),
            kv_cache,
            metadata.slot_mapping,
            positions,
            (self._cosines, self._sines),
            layer.head_norms,
            self._structure.eps,
        )
        attended = self._backend.forward(
            query,
            kv_cache,
            metadata,
            scale=spec.scale,
            sliding_window=spec.sliding_window,
            logits_soft_cap=spec.logits_soft_cap,
        )
        return layer.attention_out(attended.flatten(1))

    def _add_norm(
        self,
        rows: torch.Tensor,
        stream: torch.Tensor,
        weight: torch.Tensor,
        *,
        is_first: bool = False,
    ) -> torch.Tensor:
        """Add `rows` to `stream` in place; return its norm."""
        output = torch.empty_like(rows)
        num_rows, hidden = rows.shape
        if num_rows:
            add_norm[(num_rows,)](
                rows, stream, weight, output, self._structure.eps,
                HAS_STREAM=not is_first, HIDDEN=hidden, PAD=power_of_two(hidden),
            )  # fmt: skip
        return output

    def _gate(self, gate_up: torch.Tensor) -> torch.Tensor:
        num_rows, width = gate_up.shape[0], gate_up.shape[1] // 2
        output = gate_up.new_empty(num_rows, width)
        columns = min(_GATE_COLUMNS, power_of_two(width))
        gate[(num_rows, -(-width // columns))](
            gate_up, output, ACTIVATION=self._structure.activation, WIDTH=width, COLUMNS=columns
        )
        return output

    def _cover(self, count: int) -> None:
        if count > len(self._cosines):
            self._table.cover(count)
            self._cosines = self._table.cosines.to(self._device)
            self._sines = self._table.sines.to(self._device)


@dataclass(slots=True, frozen=True)
class _Linear:
    """One matrix, perhaps of several modules."""

    weight: torch.Tensor
    bias: torch.Tensor | None

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        return F.linear(rows, self.weight, self.bias)

    @classmethod
    def of(cls, module: Any, *paths: str) -> _Linear:
        """Merge the weights of these modules, which from then on hold views of the result."""
        parts = [module.get_submodule(path) for path in paths]
        if len(parts) == 1:
            return cls(parts[0].weight, parts[0].bias)
        sizes = [part.out_features for part in parts]
        weight = torch.cat([part.weight for part in parts])
        for part, view in zip(parts, torch.split(weight, sizes), strict=True):
            part.weight = nn.Parameter(view, requires_grad=False)
        if all(part.bias is None for part in parts):
            return cls(weight, None)
        biases = [
            weight.new_zeros(size) if part.bias is None else part.bias
            for part, size in zip(parts, sizes, strict=True)
        ]
        return cls(weight, torch.cat(biases))


@dataclass(slots=True, frozen=True)
class _Layer:
    spec: LayerSpec
    attention_norm: torch.Tensor
    qkv: _Linear
    head_norms: tuple[torch.Tensor, torch.Tensor] | None
    attention_out: _Linear
    mlp_norm: torch.Tensor
    gate_up: _Linear
    mlp_out: _Linear

    @classmethod
    def of(cls, module: Any, layer: LayerStructure, spec: LayerSpec) -> _Layer:
        head_norms = None
        if layer.has_head_norms:
            of_queries, of_keys = (module.get_submodule(path).weight for path in layer.head_norms)
            head_norms = (of_queries, of_keys)
        return cls(
            spec=spec,
            attention_norm=module.get_submodule(layer.attention_norm).weight,
            qkv=_Linear.of(module, *layer.qkv),
            head_norms=head_norms,
            attention_out=_Linear.of(module, layer.attention_out),
            mlp_norm=module.get_submodule(layer.mlp_norm).weight,
            gate_up=_Linear.of(module, *layer.gate_up),
            mlp_out=_Linear.of(module, layer.mlp_out),
        )
