"""Makes a transformers model around weights that are in memory already."""

from __future__ import annotations

import copy
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from kernelserve.errors import ModelFilesError
from kernelserve.model.paged_attention import attention_names

__all__ = ["module_of"]


def module_of(
    model_class: Any,
    config: Any,
    weights: dict[str, torch.Tensor],
    *,
    source: Path,
    left_out: Collection[str] = (),
) -> Any:
    """Return the model with its buffers and these weights, of one dtype: half a second faster than from_pretrained.

    Those that are left out hold anything. Raises ModelFilesError naming `source` if others are missing, or if some are
    none of the model's.
    """
    from transformers.initialization import no_init_weights

    dtype = next(iter(weights.values())).dtype
    with no_init_weights():
        # A copy: the choice of the attention is written into the config.
        own = copy.deepcopy(config)
        module = model_class._from_config(
            own, dtype=dtype, attn_implementation=attention_names(own)
        )
    report = module.load_state_dict(weights, strict=False, assign=True)
    module.tie_weights()
    if missing := set(report.missing_keys) - _tied_names(module) - set(left_out):
        raise ModelFilesError(f"{source} lacks {len(missing)} weights, such as {min(missing)}")
    if strange := report.unexpected_keys:
        raise ModelFilesError(
            f"{source} has {len(strange)} weights that its config has no place for, such as {min(strange)}"
        )
    return module


def _tied_names(module: Any) -> set[str]:
    """Names of the weights that are others under a second name: they are in no file."""
    ties = module._tied_weights_keys if module.config.tie_word_embeddings else None
    return set(ties or ())
