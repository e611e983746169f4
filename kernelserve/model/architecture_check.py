"""Decides from a config alone whether a model can run here, and why not."""

from __future__ import annotations

import sys
from typing import Any

from kernelserve.errors import UnsupportedModelError
from kernelserve.model.vision_recipes import VISION_RECIPES

__all__ = ["check_config", "longest_context", "resolve_model_class"]

_LAYER_TYPES = frozenset({"full_attention", "sliding_attention", "attention"})
_ALIBI_TYPES = frozenset({"bloom", "mpt"})
_NOT_CAUSAL = (
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
)


def check_config(config: Any) -> None:
    """Raise UnsupportedModelError with the reason if no model of this config can run."""
    kind = config.model_type
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(
            f"{kind} is an encoder-decoder model: only decoders can be served for now"
        )
    for name in getattr(config, "architectures", None) or []:
        if name.endswith(_NOT_CAUSAL):
            raise UnsupportedModelError(
                f"{name} does not generate text: it is not a causal decoder"
            )
    if getattr(config, "audio_config", None):
        raise UnsupportedModelError(f"{kind} takes sound: only text and images can be served")
    if getattr(config, "vision_config", None):
        _check_vision(kind, config.vision_config.model_type)
        check_config(config.get_text_config())
        return
    if getattr(config, "alibi", False) or kind in _ALIBI_TYPES:
        raise UnsupportedModelError(
            f"{kind} adds position biases (ALiBi) to its attention scores, which paged attention "
            "does not do here"
        )
    if shared := getattr(config, "num_kv_shared_layers", 0):
        raise UnsupportedModelError(
            f"{shared} layers of this {kind} model read the K/V of other layers, which the paged "
            "KV cache does not do yet"
        )
    _check_layer_types(config)


def _check_vision(kind: str, tower: str) -> None:
    if kind not in VISION_RECIPES:
        raise UnsupportedModelError(
            f"{kind} takes images in a way that is not known here: the models that can see are "
            f"{', '.join(sorted(VISION_RECIPES))}"
        )
    if VISION_RECIPES[kind].towers and tower not in VISION_RECIPES[kind].towers:
        raise UnsupportedModelError(
            f"this {kind} model has a vision tower of type {tower}, which takes other arguments than "
            f"those known here: {', '.join(sorted(VISION_RECIPES[kind].towers))}"
        )


def _check_layer_types(config: Any) -> None:
    strange = set(getattr(config, "layer_types", None) or []) - _LAYER_TYPES
    if strange:
        raise UnsupportedModelError(
            f"{config.model_type} has layers of type {', '.join(sorted(map(str, strange)))}: they "
            "keep a state of their own (state space, recurrence, convolution) or an attention "
            "pattern that the paged KV cache does not hold"
        )


def resolve_model_class(config: Any) -> Any:
    """Return the class that generates text. Raises UnsupportedModelError if it cannot run here."""
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForImageTextToText

    if getattr(config, "vision_config", None):
        _check_decoder(config, _look_up(AutoModel, config.get_text_config()))
        return _look_up(AutoModelForImageTextToText, config)
    model_class = _look_up(AutoModelForCausalLM, config)
    _check_decoder(config, model_class)
    return model_class


def _look_up(auto_class: Any, config: Any) -> Any:
    if type(config) not in auto_class._model_mapping:
        raise UnsupportedModelError(
            f"transformers has no model of type {config.model_type!r} that generates text"
        )
    model_class = auto_class._model_mapping[type(config)]
    return model_class[0] if isinstance(model_class, tuple) else model_class


def _check_decoder(config: Any, model_class: Any) -> None:
    kind = config.model_type
    if getattr(model_class, "_is_stateful", False):
        raise UnsupportedModelError(
            f"{kind} is a state-space, recurrent or hybrid model: its state does not live in a "
            "paged KV cache"
        )
    if not hasattr(sys.modules[model_class.__module__], "ALL_ATTENTION_FUNCTIONS"):
        raise UnsupportedModelError(
            f"the attention of {kind} does not go through transformers' attention interface, so "
            "the paged KV cache cannot be put under it"
        )


def longest_context(config: Any) -> tuple[int, str]:
    """Return the most tokens a text may have, and why.

    Rotary embeddings of type `dynamic` and `longrope` change for *all* texts of a batch once one of
    them is longer than the original context: such models stay within it, so that no answer depends
    on its neighbours.
    """
    limit = next(
        (
            int(getattr(config, name))
            for name in ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx")
            if getattr(config, name, None)
        ),
        None,
    )
    if limit is None:
        return 2048, "the config names no longest context"
    reason = f"the config's longest context is {limit}"
    for rope in _rope_parameters(config):
        kind = rope.get("rope_type", "default")
        if kind in ("dynamic", "longrope"):
            original = rope.get("original_max_position_embeddings") if kind == "longrope" else limit
            limit = min(limit, int(original or config.original_max_position_embeddings))
            reason = (
                f"its rotary embedding ({kind}) depends on the longest text of a batch beyond "
                f"{limit} tokens"
            )
    return limit, reason


def _rope_parameters(config: Any) -> list[dict[str, Any]]:
    rope = getattr(config, "rope_parameters", None) or {}
    nested = [value for value in rope.values() if isinstance(value, dict)]
    return nested or [rope]
