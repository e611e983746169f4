"""Loads a model: finds its files, checks that it can run and fits, and puts it on the device."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelserve.config import EngineConfig
from kernelserve.errors import (
    EngineStartError,
    InvalidConfigError,
    ModelFilesError,
    UnsupportedModelError,
    WeightsMemoryError,
)
from kernelserve.model.model_source import locate_model

if TYPE_CHECKING:
    import torch

    from kernelserve.model.loaded_model import LoadedModel

__all__ = ["load_model"]

logger = logging.getLogger(__name__)

Progress = Callable[[str, float | None], None]


def load_model(config: EngineConfig, progress: Progress) -> LoadedModel:
    """Return the model of `config`, ready for `attach`.

    Raises ModelNotFoundError, ModelFilesError, UnsupportedModelError, WeightsMemoryError or
    InvalidConfigError, each with a first line that can be read alone.
    """
    progress("import", None)
    import torch

    from kernelserve.model.architecture_check import check_config
    from kernelserve.model.fast_import import import_transformers

    device = _choose_device(config.device)
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    path = locate_model(config.model, config.revision)
    import_transformers()
    progress("load weights", None)
    folder = _as_folder(path)
    hf_config = _read_config(folder)
    check_config(hf_config)
    dtype = _choose_dtype(config.dtype, hf_config, device, is_gguf=path != folder)
    module, num_bytes = _load_weights(folder, hf_config, dtype, device)
    progress("load weights", 1.0)
    return _describe(folder, hf_config, module, num_bytes, dtype=dtype, device=device)


def _describe(
    folder: Path,
    hf_config: Any,
    module: Any,
    num_bytes: int,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> LoadedModel:
    from kernelserve.model.architecture_check import longest_context
    from kernelserve.model.loaded_model import LoadedModel
    from kernelserve.model.model_defaults import eos_token_ids, generation_defaults
    from kernelserve.model.tokenizer_files import tokenizer_folder

    max_model_len, reason = longest_context(hf_config)
    tokenizer_dir = tokenizer_folder(folder)
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
        weight_bytes=num_bytes,
        tokenizer_dir=tokenizer_dir,
        eos_token_ids=eos_token_ids(folder, tokenizer_dir, hf_config),
        generation_defaults=generation_defaults(folder),
    )


def _as_folder(path: Path) -> Path:
    """The folder itself, or the one that a .gguf file is converted to."""
    if path.is_dir():
        return path
    from kernelserve.model.gguf_loader import gguf_folder

    return gguf_folder(path)


def _choose_device(device: str) -> torch.device:
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise InvalidConfigError(f"device={device!r} is not a torch device") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise InvalidConfigError(f"device={device!r}: torch sees no NVIDIA GPU here")
    return chosen


def _choose_dtype(
    asked: str, hf_config: Any, device: torch.device, *, is_gguf: bool
) -> torch.dtype:
    """`auto`: the checkpoint's own, but on a CPU that does not compute in bfloat16 float32."""
    import torch

    if asked != "auto":
        chosen: torch.dtype = getattr(torch, asked)
        return chosen
    own = getattr(hf_config, "dtype", None)
    stored = own if isinstance(own, torch.dtype) and own.is_floating_point else torch.float32
    if device.type == "cuda":
        return torch.bfloat16 if is_gguf else stored
    if (stored.itemsize == 2 or is_gguf) and _cpu_computes_bfloat16():
        return torch.bfloat16
    return torch.float32


def _cpu_computes_bfloat16() -> bool:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return False
    flags = next((line for line in cpuinfo.open() if line.startswith("flags")), "").split()
    return "avx512_bf16" in flags or "amx_bf16" in flags


def _read_config(folder: Path) -> Any:
    from transformers import AutoConfig

    from kernelserve.model.model_files import read_json

    kind = read_json(folder / "config.json").get("model_type")
    try:
        return AutoConfig.from_pretrained(str(folder))
    except Exception as error:
        if not kind or "model type" in str(error) or "trust_remote_code" in str(error):
            raise UnsupportedModelError(
                f"transformers knows no model of type {kind!r} (code in a model folder is never run)"
            ) from error
        raise ModelFilesError(f"{folder / 'config.json'} is not usable: {error}") from error


def _load_weights(
    folder: Path, hf_config: Any, dtype: torch.dtype, device: torch.device
) -> tuple[Any, int]:
    import torch

    from kernelserve.model.architecture_check import resolve_model_class
    from kernelserve.model.device_memory import available_bytes, format_bytes
    from kernelserve.model.model_files import weight_bytes, weight_files

    model_class = resolve_model_class(hf_config)
    files = weight_files(folder)
    needed, free = weight_bytes(files, dtype.itemsize), available_bytes(device)
    numbers = f"{format_bytes(needed)} in {dtype}, and {format_bytes(free)} are free on {device}"
    if needed > free:
        raise WeightsMemoryError(f"the weights do not fit: they take {numbers}")
    try:
        module = _from_pretrained(model_class, folder, hf_config, dtype, device)
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise WeightsMemoryError(f"out of memory at the weights: they take {numbers}") from error
    except EngineStartError:
        raise
    except Exception as error:
        if "memory" in str(error).lower():
            raise WeightsMemoryError(f"out of memory at the weights: {numbers}") from error
        raise ModelFilesError(f"the weights in {folder} cannot be loaded: {error}") from error
    return module, sum(p.numel() * p.element_size() for p in module.parameters())


def _from_pretrained(
    model_class: Any, folder: Path, hf_config: Any, dtype: torch.dtype, device: torch.device
) -> Any:
    from transformers.utils import logging as hf_logging

    from kernelserve.model.paged_attention import ATTENTION_NAME, register_attention

    register_attention()
    hf_logging.disable_progress_bar()
    module, report = model_class.from_pretrained(
        str(folder),
        config=hf_config,
        dtype=dtype,
        attn_implementation=ATTENTION_NAME,
        device_map={"": device} if device.type != "cpu" else None,
        output_loading_info=True,
    )
    if missing := sorted(report["missing_keys"]):
        raise ModelFilesError(
            f"{folder} lacks {len(missing)} weights of the model, such as {missing[0]}"
        )
    return module.eval().requires_grad_(False)
