"""Tries a model whose architecture no test of ours has proven, before anyone relies on it."""

from __future__ import annotations

from typing import Any

import torch

from kernelserve.errors import UnsupportedModelError
from kernelserve.model.loaded_model import LoadedModel
from kernelserve.model.paged_attention import attention_names
from kernelserve.model.trial_run import relative_error, trial_logits, trial_texts

__all__ = ["PROVEN", "check_against_transformers", "is_proven"]

PROVEN = frozenset(
    {
        "cohere",
        "cohere2",
        "gemma2",
        "gemma3_text",
        "gpt2",
        "gpt_neox",
        "gpt_oss",
        "granite",
        "llama",
    }
    | {"mistral", "mixtral", "olmo2", "opt", "phi3", "qwen2", "qwen3", "qwen3_moe", "smollm3"}
    | {"starcoder2"}
)
"""Model types that tests/model compares with transformers token by token."""
_PROVEN_WITH_IMAGES = frozenset({"qwen2_vl_text", "qwen2_5_vl_text"})
"""Decoders that exist only beside a vision tower; tests/worker compares them."""

_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.02}


def is_proven(config: Any) -> bool:
    """Whether the decoder of this config is of a proven type."""
    return config.get_text_config().model_type in PROVEN | _PROVEN_WITH_IMAGES


def check_against_transformers(model: LoadedModel) -> None:
    """Compare a short text, fed in chunks beside another, with one pass of transformers itself.

    Raises UnsupportedModelError if they differ: such a model keeps a state outside the KV cache, or
    attends in a way that the paged cache does not know.
    """
    expected = _transformers_logits(model, trial_texts(model)[0])
    error = relative_error(trial_logits(model), expected)
    if not error <= _TOLERANCE[model.dtype]:
        raise UnsupportedModelError(
            f"a {model.model_type} model gives other numbers on the paged KV cache than by itself "
            f"(off by {error:.1%}): it keeps a state of its own or attends in a special way"
        )


@torch.inference_mode()
def _transformers_logits(model: LoadedModel, text: torch.Tensor) -> torch.Tensor:
    module, config = model.module, model.hf_config
    module.set_attn_implementation(attention_names(config, "eager"))
    try:
        logits: torch.Tensor = module(input_ids=text[None], use_cache=False).logits[0].float()
    finally:
        module.set_attn_implementation(attention_names(config))
    return logits
