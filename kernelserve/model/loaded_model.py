"""A transformers model that is ready to run steps on a paged KV cache."""

from __future__ import annotations

import inspect
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from kernelserve.attention import AttentionBackend, AttentionMetadata, LayerKVCache
from kernelserve.errors import UnsupportedModelError
from kernelserve.model.fused.fused_decoder import FusedDecoder
from kernelserve.model.kv_cache_spec import KVCacheSpec, LayerSpec
from kernelserve.model.paged_attention import PagedAttention
from kernelserve.model.vision_model import VisionModel

if TYPE_CHECKING:
    from kernelserve.model.fused.gpu_decoder import GpuDecoder

__all__ = ["LoadedModel"]


@dataclass
class LoadedModel:
    """The model and what the engine must know about it. `attach` comes before `forward`."""

    module: Any
    """A transformers model that generates text, on `device`, in eval mode, without gradients.

    None, with `fused` and `known_layers`: all of the model runs in our kernels.
    """
    hf_config: Any
    """Its config, None if there is no module."""
    dtype: torch.dtype
    device: torch.device
    model_type: str
    vocab_size: int
    """Rows of the output head."""
    max_model_len: int
    """The model's own limit."""
    max_model_len_reason: str
    """Why the limit is what it is."""
    tokenizer_dir: str
    """Empty: the model brings no tokenizer."""
    eos_token_ids: list[int]
    generation_defaults: dict[str, Any]
    processor_dir: str = ""
    """Folder with the settings of the image processor; empty: the model takes no images."""
    vision: VisionModel | None = None
    known_layers: InitVar[tuple[LayerSpec, ...] | None] = None
    """The layers of `kv_cache_spec`; None: the model is run once to find them."""
    fused: FusedDecoder | GpuDecoder | None = None
    """Runs the layers in place of `module`, which then has no weights of its own for them, or shares them."""
    torch_reason: str = ""
    """Why `module` runs them although `fused` was wanted."""
    weight_bytes: int = field(init=False)
    kv_cache_spec: KVCacheSpec = field(init=False)

    def __post_init__(self, known_layers: tuple[LayerSpec, ...] | None) -> None:
        self.weight_bytes = self.parameter_bytes + (self.fused.weight_bytes if self.fused else 0)
        if self.module is not None:
            self._attention = PagedAttention(self.module)
            accepted = inspect.signature(self.module.forward).parameters
            self._selects_rows = "logits_to_keep" in accepted
        layers = self._discover_layers() if known_layers is None else known_layers
        self.kv_cache_spec = KVCacheSpec(layers, self.dtype.itemsize)

    @property
    def parameter_bytes(self) -> int:
        """Memory of the parameters of `module`."""
        if self.module is None:
            return 0
        return sum(p.numel() * p.element_size() for p in self.module.parameters())

    def attach(
        self, kv_caches: list[LayerKVCache], backend: AttentionBackend, *, block_size: int
    ) -> None:
        """Give layer i of `kv_cache_spec` the memory kv_caches[i]."""
        if self.fused is not None:
            self.fused.attach(kv_caches, block_size)
        else:
            self._attention.attach(self.kv_cache_spec.layers, kv_caches, backend)

    def allocate(
        self, backend: AttentionBackend, *, num_blocks: int, block_size: int
    ) -> list[LayerKVCache]:
        """Return the KV cache of all layers and attach it."""
        kv_caches = [
            backend.allocate(
                num_blocks,
                block_size=block_size,
                num_kv_heads=layer.num_kv_heads,
                key_dim=layer.key_dim,
                value_dim=layer.value_dim,
                dtype=self.dtype,
                device=self.device,
            )
            for layer in self.kv_cache_spec.layers
        ]
        self.attach(kv_caches, backend, block_size=block_size)
        return kv_caches

    def detach(self) -> None:
        """Let go of the KV cache."""
        if self.fused is not None:
            self.fused.detach()
        else:
            self._attention.detach()

    @torch.inference_mode()
    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        metadata: AttentionMetadata,
        logits_indices: torch.Tensor,
        *,
        inputs_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Run one flattened row of tokens; return the logits of the asked rows.

        Args:
            input_ids: int64 [T]
            positions: int64 [T]; [3, T] if the vision model uses M-RoPE and some token needs it.
            logits_indices: int64 [R], rows of the T; may be empty.
            inputs_embeds: [T, hidden], to be used in place of the ids.

        Returns [R, vocab] in the dtype of the model, scaled and capped as the model itself does.
        """
        if self.fused is not None:
            return self.fused.forward(input_ids, positions, metadata, logits_indices, inputs_embeds)
        with self._attention.step(metadata):
            return self._run(input_ids, positions, logits_indices, inputs_embeds)

    def _run(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        logits_indices: torch.Tensor,
        inputs_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        options = {"logits_to_keep": logits_indices} if self._selects_rows else {}
        if inputs_embeds is None:
            options["input_ids"] = input_ids[None]
        else:
            options["inputs_embeds"] = inputs_embeds[None]
        output = self.module(position_ids=positions.unsqueeze(-2), use_cache=False, **options)
        logits: torch.Tensor = output.logits[0]
        return logits if self._selects_rows else logits[logits_indices]

    @torch.inference_mode()
    def _discover_layers(self) -> tuple[Any, ...]:
        token = torch.zeros(1, dtype=torch.int64, device=self.device)
        layers = self._attention.discover(lambda: self._run(token, token, token))
        expected = getattr(self.hf_config.get_text_config(), "num_hidden_layers", len(layers))
        if not layers or len(layers) < expected:
            raise UnsupportedModelError(
                f"only {len(layers)} of the {expected} layers of a {self.model_type} model attend "
                "through transformers' attention interface; this engine needs all of them"
            )
        return layers
