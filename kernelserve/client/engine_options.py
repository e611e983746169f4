"""What a caller may say about the engine that it wants, sorted into the engine's and the launcher's part."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec

from kernelserve.config import EngineConfig, ImageCache, Lifetime, SchedulerPolicy
from kernelserve.errors import InvalidConfigError

__all__ = ["EngineOptions", "LaunchOptions", "parse_engine_options"]


class EngineOptions(TypedDict, total=False):
    """Keyword options of LLM and AsyncLLM: the fields of EngineConfig and of LaunchOptions."""

    revision: str | None
    dtype: str
    device: str
    seed: int
    num_threads: int | None
    attention_backend: str
    fuse_layers: bool
    activation_dtype: str
    block_size: int
    max_model_len: int | None
    kv_cache_memory_bytes: int | None
    gpu_memory_utilization: float
    num_gpu_blocks: int | None
    enable_prefix_caching: bool
    max_num_seqs: int
    max_num_batched_tokens: int
    long_prefill_token_threshold: int
    max_step_stretch: float
    policy: SchedulerPolicy
    encoder_cache_size: int
    max_images_per_prompt: int
    mm_processor_cache_type: ImageCache
    mm_processor_cache_bytes: int
    max_logprobs: int
    logprobs_mode: str
    num_step_records: int
    name: str
    lifetime: Lifetime
    linger_s: float
    idle_unload_s: float | None
    heartbeat_timeout: float
    fake_model: bool


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """How the engine process lives. `name` is its slot: a second engine in the same slot replaces the first."""

    name: str = "default"
    lifetime: Lifetime = "kernel"
    """`kernel`: dies with this process; `linger`: survives it for `linger_s`; `detached`: until it is stopped."""
    linger_s: float = 600.0
    idle_unload_s: float | None = None
    """End the engine process after so many seconds without a request; it is started again on the next use."""
    heartbeat_timeout: float = 30.0
    """Seconds without an answer after which the engine counts as hung."""
    fake_model: bool = False
    """A deterministic token source in place of a model: for measuring the engine itself."""


_LAUNCH_FIELDS = tuple(LaunchOptions.__dataclass_fields__)
_DEFAULTS_VARIABLE = "KERNELSERVE_ENGINE_OPTIONS"


def parse_engine_options(model: str, options: EngineOptions) -> tuple[EngineConfig, LaunchOptions]:
    """Split keyword options. What is not given comes from KERNELSERVE_ENGINE_OPTIONS, a JSON object, if that is set.

    Raises InvalidConfigError for an unknown one, with the nearest that exists.
    """
    config_fields = [field for field in EngineConfig.__struct_fields__ if field != "model"]
    config: dict[str, Any] = {}
    launch: dict[str, Any] = {}
    for key, value in (_environment_defaults() | options).items():
        if key in _LAUNCH_FIELDS:
            launch[key] = value
        elif key in config_fields:
            config[key] = value
        else:
            near = difflib.get_close_matches(key, [*config_fields, *_LAUNCH_FIELDS], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InvalidConfigError(f"there is no engine option {key!r}{hint}")
    if not isinstance(model, str):
        raise InvalidConfigError(f"model={model!r} must be a name, a hub id or a path as text")
    parsed = LaunchOptions(**launch)
    if parsed.lifetime not in ("kernel", "linger", "detached"):
        raise InvalidConfigError(
            f"lifetime={parsed.lifetime!r} is not one of kernel, linger, detached"
        )
    return EngineConfig(model=model, **config), parsed


def _environment_defaults() -> dict[str, Any]:
    """What whoever set up this machine or image has chosen for every engine."""
    text = os.environ.get(_DEFAULTS_VARIABLE)
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise InvalidConfigError(
            f'{_DEFAULTS_VARIABLE}={text!r} must be a JSON object such as {{"max_model_len": 2048}}: {error}'
        ) from None
