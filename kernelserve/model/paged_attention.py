"""The hook into transformers: the attention of a model runs on our paged KV cache.

transformers looks an attention function up by name and calls it with the module that attends. What
a call needs besides, it finds on that module: each attention module carries an `AttentionLayer`.
No mask function is registered under our name, so transformers builds no masks at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kernelserve.attention import AttentionBackend, AttentionMetadata, LayerKVCache
from kernelserve.errors import UnsupportedModelError
from kernelserve.model.kv_cache_spec import LayerSpec

__all__ = [
    "ATTENTION_NAME",
    "AttentionLayer",
    "PagedAttention",
    "attention_names",
    "register_attention",
]

ATTENTION_NAME = "kernelserve_paged"

_SLOT = "kernelserve_attention"
_HARMLESS = frozenset(
    {
        "position_ids",
        "position_embeddings",
        "use_cache",
        "output_attentions",
        "is_causal",
        "dropout",
    }
    | {"output_hidden_states", "return_dict", "num_items_in_batch", "output_router_logits"}
    | {"logits_to_keep"}
)
"""Options of an attention call that change nothing here. Any other that is set is refused."""


def register_attention() -> None:
    """Make `ATTENTION_NAME` known to transformers. Safe to call twice."""
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register(ATTENTION_NAME, _attention_forward)


def attention_names(config: Any, own: str = ATTENTION_NAME) -> Any:
    """Return transformers' setting that gives the language model the attention `own`.

    A vision tower keeps its own attention: its rows see all of their picture, and nothing is cached.
    """
    if getattr(config, "vision_config", None) is None:
        return own
    return {"": "sdpa", "text_config": own, "vision_config": "sdpa"}


def _attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attend for [1, H, T, D]; return [1, T, H, Dv] as transformers expects it."""
    _refuse_unknown(module, attention_mask, options)
    layer = module.__dict__[_SLOT]
    result = layer(
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        sliding_window=sliding_window,
        logits_soft_cap=softcap,
        sinks=s_aux,
    )
    return result[None], None


def _refuse_unknown(
    module: torch.nn.Module, mask: torch.Tensor | None, options: dict[str, Any]
) -> None:
    name = type(module).__name__
    if mask is not None:
        raise UnsupportedModelError(f"{name} builds an attention mask of its own")
    is_causal = options.get("is_causal")
    if not (getattr(module, "is_causal", True) if is_causal is None else is_causal):
        raise UnsupportedModelError(f"{name} attends in both directions: not a causal decoder")
    for option, value in options.items():
        if option not in _HARMLESS and value is not None:
            raise UnsupportedModelError(f"{name} needs attention with {option!r}, not known here")


class AttentionLayer:
    """One attention module's cache, and its way to the metadata of the step."""

    __slots__ = ("_owner", "kv_cache", "spec")

    def __init__(self, owner: PagedAttention, spec: LayerSpec, kv_cache: LayerKVCache) -> None:
        self._owner = owner
        self.spec = spec
        self.kv_cache = kv_cache

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any
    ) -> torch.Tensor:
        metadata, backend = self._owner.metadata, self._owner.backend
        assert metadata is not None, "a forward pass outside PagedAttention.step()"
        assert backend is not None
        backend.write_kv(key, value, self.kv_cache, metadata.slot_mapping)
        return backend.forward(query, self.kv_cache, metadata, **options)


class PagedAttention:
    """The attention of one model: finds its layers, gives each a cache, carries the step's metadata."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self.metadata: AttentionMetadata | None = None
        self.backend: AttentionBackend | None = None

    def discover(self, run: Callable[[], object]) -> tuple[LayerSpec, ...]:
        """Run the model once, with `run`, and return the layers that attended, in their order.

        Raises UnsupportedModelError if one of them attends twice.
        """
        specs: dict[str, LayerSpec] = {}
        for name, module in self._module.named_modules():
            setattr(module, _SLOT, _Recorder(name, specs))
        try:
            run()
        finally:
            for module in self._module.modules():
                delattr(module, _SLOT)
        return tuple(specs.values())

    def attach(
        self, specs: tuple[LayerSpec, ...], kv_caches: list[LayerKVCache], backend: AttentionBackend
    ) -> None:
        """Give each layer its cache; the lists run in parallel."""
        self.backend = backend
        for spec, kv_cache in zip(specs, kv_caches, strict=True):
            layer = AttentionLayer(self, spec, kv_cache)
            setattr(self._module.get_submodule(spec.name), _SLOT, layer)

    def detach(self) -> None:
        """Drop all caches, so that their memory can be freed."""
        self.backend = None
        for module in self._module.modules():
            module.__dict__.pop(_SLOT, None)

    @contextmanager
    def step(self, metadata: AttentionMetadata) -> Iterator[None]:
        """Let the layers see `metadata` for the duration of one forward pass."""
        assert self.metadata is None, "a forward pass inside another"
        self.metadata = metadata
        try:
            yield
        finally:
            self.metadata = None


class _Recorder:
    """Stands in for a layer while the model is being looked at."""

    def __init__(self, name: str, specs: dict[str, LayerSpec]) -> None:
        self._name = name
        self._specs = specs

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scale: float,
        sliding_window: int | None,
        logits_soft_cap: float | None,
        sinks: torch.Tensor | None,
    ) -> torch.Tensor:
        if self._name in self._specs:
            raise UnsupportedModelError(f"{self._name} attends more than once in a forward pass")
        self._specs[self._name] = LayerSpec(
            self._name,
            num_heads=query.shape[1],
            num_kv_heads=key.shape[1],
            key_dim=key.shape[2],
            value_dim=value.shape[2],
            sliding_window=sliding_window,
            scale=scale,
            logits_soft_cap=logits_soft_cap,
            has_sinks=sinks is not None,
        )
        return query.new_zeros(query.shape[0], query.shape[1], value.shape[2])
