"""Loads a model: finds its files, checks that it can run and fits, and puts it on the device."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelserve.config import EngineConfig
from kernelserve.errors import (
    EngineStartError,
    InvalidConfigError,
    ModelFilesError,
)
from kernelserve.model.model_source import locate_model
from kernelserve.torch_import import load_meta_operators
from kernelserve.transformers_import import remember_model_index

if TYPE_CHECKING:
    import torch

    from kernelserve.model.checkpoint import Checkpoint
    from kernelserve.model.fused.fusion import Fusion
    from kernelserve.model.fused.known_model import KnownModel
    from kernelserve.model.head_start import HeadStart
    from kernelserve.model.kv_cache_spec import LayerSpec
    from kernelserve.model.loaded_model import LoadedModel

__all__ = ["load_model"]

logger = logging.getLogger(__name__)

Progress = Callable[[str, float | None], None]


def load_model(
    config: EngineConfig, progress: Progress, head_start: HeadStart | None = None
) -> LoadedModel:
    """Return the model of `config`, ready for `attach`; `head_start` is what has begun with the same config.

    Raises ModelNotFoundError, ModelFilesError, UnsupportedModelError, WeightsMemoryError or
    InvalidConfigError, each with a first line that can be read alone.
    """
    progress("import", None)
    path = locate_model(config.model, config.revision)
    with _no_garbage_collection():
        return _load_path(path, config, progress, head_start)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Importing torch and transformers makes a million lasting objects: looking through them again
    and again would take a fifth of the start-up.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _load_path(
    path: Path, config: EngineConfig, progress: Progress, head_start: HeadStart | None
) -> LoadedModel:
    import torch

    from kernelserve.model.known_loader import load_known_model
    from kernelserve.model.placement import choose_device

    device = choose_device(config.device)
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    fusion = _plan_fusion(config, device)
    checkpoint = _open(path)
    loaded = None
    if fusion is not None and (known := _recall(checkpoint, fusion, config)) is not None:
        progress("load weights", None)
        packed = {} if head_start is None else head_start.take(path, known)
        loaded = load_known_model(checkpoint, known, fusion, packed)
    if loaded is None:
        loaded = _load_with_transformers(checkpoint, fusion, config, device, progress)
    if config.activation_dtype == "int8" and not (loaded.fused and loaded.fused.round_inputs()):
        raise InvalidConfigError(
            f"activation_dtype='int8' needs 4-bit GGUF weights in our kernels, which run on a CPU in float32; "
            f"{config.model!r} with fuse_layers={config.fuse_layers} in {loaded.dtype} on {device} is not run by "
            "them, or has no such weights: leave it out (the engine's log has the reason)"
        )
    progress("load weights", 1.0)
    return loaded


def _recall(checkpoint: Checkpoint, fusion: Fusion, config: EngineConfig) -> KnownModel | None:
    """What makes the short way possible, for a model that has been here before; None: it must be the long one."""
    import torch

    from kernelserve.model.placement import choose_dtype

    known = fusion.recall(checkpoint)
    if known is None:
        return None
    stored = getattr(torch, known.dtype, None)
    if choose_dtype(config.dtype, stored, torch.device("cpu")) != torch.float32:
        return None
    if known.needs_module:
        fusion.leave_matrices(known, checkpoint)
        return None
    return known


def _load_with_transformers(
    checkpoint: Checkpoint,
    fusion: Fusion | None,
    config: EngineConfig,
    device: torch.device,
    progress: Progress,
) -> LoadedModel:
    import torch

    from kernelserve.model.placement import choose_dtype
    from kernelserve.model.weights_fit import check_weights_fit

    stored = checkpoint.stored_dtype
    if stored is not None:
        # Importing transformers takes longer than unpacking a small model, and both cores are there.
        early_dtype = choose_dtype(config.dtype, stored, device)
        check_weights_fit(checkpoint, early_dtype, device)
        checkpoint.prefetch(early_dtype)
    load_meta_operators()
    remember_model_index()
    from kernelserve.model.architecture_check import check_config, resolve_model_class

    hf_config = checkpoint.read_config()
    check_config(hf_config)
    model_class = resolve_model_class(hf_config)
    progress("load weights", None)
    stored = stored or getattr(hf_config, "dtype", None)
    dtype = choose_dtype(config.dtype, stored, device)
    module = _load(checkpoint, model_class, hf_config, dtype, device)
    known_layers = None if fusion is None else fusion.known_layers
    loaded = _describe(checkpoint, hf_config, module, dtype, device, known_layers)
    if known_layers is None:
        _check(loaded)
    if fusion is not None and dtype == torch.float32:
        fusion.apply(loaded, checkpoint, stored or dtype)
    else:
        logger.info(
            "The layers run in torch: fuse_layers=%s, %s on %s", config.fuse_layers, dtype, device
        )
    return loaded


def _plan_fusion(config: EngineConfig, device: torch.device) -> Fusion | None:
    if not config.fuse_layers or device.type != "cpu":
        return None
    from kernelserve.model.fused.fusion import Fusion

    return Fusion()


def _open(path: Path) -> Checkpoint:
    from kernelserve.model.gguf_checkpoint import GgufCheckpoint

    if path.is_file():
        return GgufCheckpoint(path)
    from kernelserve.model.folder_checkpoint import FolderCheckpoint
    from kernelserve.model.joined_checkpoint import JoinedCheckpoint, text_model_of

    text_model = text_model_of(path)
    if text_model is None:
        return FolderCheckpoint(path)
    return JoinedCheckpoint(path, GgufCheckpoint(locate_model(text_model)))


def _load(
    checkpoint: Checkpoint,
    model_class: Any,
    hf_config: Any,
    dtype: torch.dtype,
    device: torch.device,
) -> Any:
    """The module with its weights, after a check that they fit."""
    from transformers.utils import logging as hf_logging

    from kernelserve.model.paged_attention import register_attention
    from kernelserve.model.weights_fit import check_weights_fit, out_of_memory_at_weights

    numbers = check_weights_fit(checkpoint, dtype, device)
    register_attention()
    hf_logging.disable_progress_bar()
    try:
        with out_of_memory_at_weights(numbers):
            module = checkpoint.load(model_class, hf_config, dtype=dtype, device=device)
    except EngineStartError:
        raise
    except Exception as error:
        raise ModelFilesError(f"the weights cannot be loaded: {error}") from error
    return module.eval().requires_grad_(False)


def _describe(
    checkpoint: Checkpoint,
    hf_config: Any,
    module: Any,
    dtype: torch.dtype,
    device: torch.device,
    known_layers: tuple[LayerSpec, ...] | None,
) -> LoadedModel:
    from kernelserve.model.architecture_check import longest_context
    from kernelserve.model.loaded_model import LoadedModel
    from kernelserve.model.model_defaults import config_eos_token_ids
    from kernelserve.model.vision_model import VisionModel
    from kernelserve.model.vision_recipes import VISION_RECIPES

    vision = None
    if getattr(hf_config, "vision_config", None) is not None:
        recipe = VISION_RECIPES[hf_config.model_type]
        vision = VisionModel(module, recipe, hf_config.image_token_id)
    max_model_len, reason = longest_context(hf_config.get_text_config())
    tokenizer_dir = checkpoint.tokenizer_dir()
    head = module.get_output_embeddings()
    return LoadedModel(
        module=module,
        hf_config=hf_config,
        dtype=dtype,
        device=device,
        model_type=hf_config.model_type,
        vocab_size=hf_config.vocab_size if head is None else head.weight.shape[0],
        max_model_len=max_model_len,
        max_model_len_reason=reason,
        tokenizer_dir=tokenizer_dir,
        eos_token_ids=checkpoint.eos_token_ids(config_eos_token_ids(hf_config), tokenizer_dir),
        generation_defaults=checkpoint.generation_defaults(),
        processor_dir="" if vision is None else checkpoint.processor_dir(),
        vision=vision,
        known_layers=known_layers,
    )


def _check(loaded: LoadedModel) -> None:
    from kernelserve.model.self_check import check_against_transformers, is_proven

    if not is_proven(loaded.hf_config):
        check_against_transformers(loaded)
