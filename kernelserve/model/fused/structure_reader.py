"""Recognises a decoder that the kernels can run, by how its modules are put together and not by its name."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from kernelserve.model.fused.decoder_structure import (
    DecoderStructure,
    LayerStructure,
    RotaryStructure,
)
from kernelserve.model.fused.rotary_table import RotaryTable

__all__ = ["UnknownStructureError", "read_structure"]

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


def read_structure(module: Any) -> DecoderStructure:
    """Look at a transformers model that generates text. Raises UnknownStructureError.

    Names and sizes are a hint only: whether the numbers are those of transformers, `Fusion` tries out.
    """
    decoder = module.get_decoder()
    paths = {id(part): name for name, part in module.named_modules()}
    _check_children(decoder, {"embed_tokens", "layers", "norm", "rotary_emb"}, "the decoder")
    kinds = {_check_layer(layer) for layer in decoder.layers}
    if len(kinds) != 1:
        raise UnknownStructureError(f"its layers differ: {sorted(kinds)}")
    [(eps, activation, has_head_norms)] = kinds
    if getattr(decoder.norm, "variance_epsilon", None) != eps:
        raise UnknownStructureError("its last norm differs from the others")
    head = module.get_output_embeddings()
    if type(head) is not nn.Linear or getattr(head, "bias", None) is not None:
        raise UnknownStructureError("its output head is no plain linear layer")
    layers = tuple(LayerStructure(paths[id(layer)], has_head_norms) for layer in decoder.layers)
    linears = [path for layer in layers for path in layer.linears]
    num_embeddings, hidden_size = decoder.embed_tokens.weight.shape
    return DecoderStructure(
        layers=layers,
        hidden_size=hidden_size,
        intermediate_size=decoder.layers[0].mlp.down_proj.in_features,
        num_embeddings=num_embeddings,
        num_outputs=head.weight.shape[0],
        norm=paths[id(decoder.norm)],
        embedding=paths[id(decoder.embed_tokens)],
        head=paths[id(head)],
        is_tied=head.weight is decoder.embed_tokens.weight,
        biased=frozenset(path for path in linears if module.get_submodule(path).bias is not None),
        rotary=_read_rotary(decoder.rotary_emb),
        eps=eps,
        activation=activation,
    )


def _read_rotary(rotary: Any) -> RotaryStructure:
    kind = getattr(rotary, "rope_type", None)
    if kind not in _FIXED_ROTARY:
        raise UnknownStructureError(f"its rotary embedding is of the kind {kind!r}")
    inv_freq, scaling = getattr(rotary, "inv_freq", None), getattr(rotary, "attention_scaling", 1.0)
    if not isinstance(inv_freq, torch.Tensor) or inv_freq.dtype != torch.float32:
        raise UnknownStructureError("its rotary embedding has no frequencies in float32")
    structure = RotaryStructure(tuple(inv_freq.tolist()), float(scaling))
    table = RotaryTable(structure)
    half = len(structure.inv_freq)  # the second half repeats the first
    cosines, sines = rotary(torch.zeros(1), torch.arange(len(table.cosines))[None])
    for ours, theirs in ((table.cosines, cosines), (table.sines, sines)):
        if theirs.shape[-1] != 2 * half or not torch.equal(ours, theirs[0, :, :half]):
            raise UnknownStructureError(
                "its rotary embedding has other angles than its frequencies say"
            )
    return structure


def _check_layer(layer: Any) -> tuple[float, int, bool]:
    """Return epsilon and activation of a layer, and whether it norms its heads."""
    _check_children(layer, _LAYER, "a layer")
    attention, mlp = layer.self_attn, layer.mlp
    _check_children(attention, _ATTENTION, "the attention", optional=_HEAD_NORMS)
    _check_children(mlp, _MLP, "the MLP")
    for linear in (*_linears(attention, _ATTENTION), *_linears(mlp, _MLP - {"act_fn"})):
        if type(linear) is not nn.Linear:
            raise UnknownStructureError(
                f"it has a {type(linear).__name__} where a Linear should be"
            )
    head_norms = [part for name, part in attention.named_children() if name in _HEAD_NORMS]
    if len(head_norms) == 1:
        raise UnknownStructureError("it norms only one of queries and keys")
    norms = [layer.input_layernorm, layer.post_attention_layernorm, *head_norms]
    epsilons = {getattr(norm, "variance_epsilon", None) for norm in norms}
    [eps] = epsilons if len(epsilons) == 1 else [None]
    if eps is None:
        raise UnknownStructureError(f"its norms are of the kind {type(norms[0]).__name__}")
    activation = _ACTIVATIONS.get(_activation_name(mlp))
    if activation is None:
        raise UnknownStructureError(f"its activation is {type(mlp.act_fn).__name__}")
    return float(eps), activation, bool(head_norms)


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
