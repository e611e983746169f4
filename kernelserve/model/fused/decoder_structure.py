"""Recognises a decoder that the kernels can run, by how its modules are put together and not by its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

__all__ = ["DecoderStructure", "LayerStructure", "UnknownStructureError"]

_LAYER = {"input_layernorm", "self_attn", "post_attention_layernorm", "mlp"}
_ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}
_HEAD_NORMS = {"q_norm", "k_norm"}
_MLP = {"gate_proj", "up_proj", "down_proj", "act_fn"}
_ACTIVATIONS = {"silu": 0, "gelu_pytorch_tanh": 1}
"""transformers' name -> number in cpu/pointwise.h."""
_FIXED_ROTARY = {"default", "linear", "llama3", "yarn"}
"""Kinds of rotary embedding whose angles depend on the position alone."""


class UnknownStructureError(Exception):
    """Why a model stays with transformers' own code."""


@dataclass(slots=True, frozen=True)
class LayerStructure:
    """One layer's linear modules and norms."""

    name: str
    """Path of the layer in the model."""
    module: Any

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


@dataclass(slots=True, frozen=True)
class DecoderStructure:
    """A decoder of equal layers: norm, attention with rotary positions, norm, gated MLP, each added to its input."""

    layers: list[LayerStructure]
    norm: Any
    rotary: Any
    embedding: str
    """Path of the embedding."""
    head: str
    """Path of the output head."""
    is_tied: bool
    """Whether the head shares the embedding's weight."""
    eps: float
    activation: int

    @classmethod
    def of(cls, module: Any) -> DecoderStructure:
        """Look at a transformers model that generates text. Raises UnknownStructureError.

        Names and sizes are a hint only: whether the numbers are those of transformers, `fuse` tries out.
        """
        decoder = module.get_decoder()
        paths = {id(part): name for name, part in module.named_modules()}
        _check_children(decoder, {"embed_tokens", "layers", "norm", "rotary_emb"}, "the decoder")
        layers = [LayerStructure(paths[id(layer)], layer) for layer in decoder.layers]
        kinds = {_check_layer(layer.module) for layer in layers}
        if len(kinds) != 1:
            raise UnknownStructureError(f"its layers differ: {sorted(kinds)}")
        [(eps, activation)] = kinds
        if getattr(decoder.norm, "variance_epsilon", None) != eps:
            raise UnknownStructureError("its last norm differs from the others")
        rotary = decoder.rotary_emb
        kind = getattr(rotary, "rope_type", None)
        if kind not in _FIXED_ROTARY:
            raise UnknownStructureError(f"its rotary embedding is of the kind {kind!r}")
        head = module.get_output_embeddings()
        if type(head) is not nn.Linear or getattr(head, "bias", None) is not None:
            raise UnknownStructureError("its output head is no plain linear layer")
        embedding = paths[id(decoder.embed_tokens)]
        is_tied = head.weight is decoder.embed_tokens.weight
        return cls(
            layers, decoder.norm, rotary, embedding, paths[id(head)], is_tied, eps, activation
        )


def _check_layer(layer: Any) -> tuple[float, int]:
    """Return epsilon and activation of a layer."""
    _check_children(layer, _LAYER, "a layer")
    attention, mlp = layer.self_attn, layer.mlp
    _check_children(attention, _ATTENTION, "the attention", optional=_HEAD_NORMS)
    _check_children(mlp, _MLP, "the MLP")
    for linear in (*_linears(attention, _ATTENTION), *_linears(mlp, _MLP - {"act_fn"})):
        if type(linear) is not nn.Linear:
            raise UnknownStructureError(
                f"it has a {type(linear).__name__} where a Linear should be"
            )
    norms = [layer.input_layernorm, layer.post_attention_layernorm]
    norms += [part for name, part in attention.named_children() if name in _HEAD_NORMS]
    epsilons = {getattr(norm, "variance_epsilon", None) for norm in norms}
    [eps] = epsilons if len(epsilons) == 1 else [None]
    if eps is None:
        raise UnknownStructureError(f"its norms are of the kind {type(norms[0]).__name__}")
    activation = _ACTIVATIONS.get(_activation_name(mlp))
    if activation is None:
        raise UnknownStructureError(f"its activation is {type(mlp.act_fn).__name__}")
    return float(eps), activation


def _check_children(
    module: Any, names: set[str], what: str, *, optional: set[str] | None = None
) -> None:
    found = {name for name, _ in module.named_children()}
    if missing := names - found:
        raise UnknownStructureError(f"{what} has no {min(missing)}")
    if strange := found - names - (optional or set()):
        raise UnknownStructureError(f"{what} has a {min(strange)}")


def _linears(module: Any, names: set[str]) -> list[Any]:
    return [getattr(module, name) for name in sorted(names)]


def _activation_name(mlp: Any) -> str:
    config = getattr(mlp, "config", None)
    for field in ("hidden_act", "hidden_activation"):
        if name := getattr(config, field, None):
            return str(name)
    return "silu" if isinstance(mlp.act_fn, nn.SiLU) else ""
