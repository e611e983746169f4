"""Owns the model, its KV cache and its runner on one device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from kernelserve.attention.choice import make_backend
from kernelserve.attention.torch_backend import TorchAttention
from kernelserve.config import EngineConfig
from kernelserve.core.scheduler_output import (
    CachedRequestData,
    ModelRunnerOutput,
    NewRequestData,
    SchedulerOutput,
)
from kernelserve.errors import InvalidConfigError, KVCacheMemoryError
from kernelserve.model.device_memory import format_bytes
from kernelserve.model.head_start import HeadStart
from kernelserve.model.loader import load_model
from kernelserve.multimodal.useful_side import useful_image_side
from kernelserve.sampling_params import SamplingParams
from kernelserve.worker.kv_cache_size import KVCacheSize, plan_kv_cache
from kernelserve.worker.memory import device_memory
from kernelserve.worker.model_info import ModelInfo, Progress
from kernelserve.worker.model_runner import ModelRunner

__all__ = ["Worker"]


class Worker:
    """Loads in the constructor, in three timed phases: weights, KV cache, warm-up.

    Raises an EngineStartError subclass or InvalidConfigError when it cannot.
    """

    def __init__(
        self, config: EngineConfig, progress: Progress, head_start: HeadStart | None = None
    ) -> None:
        self._config = config
        self._seconds: dict[str, float] = {}
        backend = make_backend(config.attention_backend, config.device)
        if not isinstance(backend, TorchAttention):
            # The kernels for CPUs know the layout of torch's cache alone.
            config = config.replace(fuse_layers=False)
        with self._phase("load weights"):
            self._model = load_model(config, progress, head_start)
            if not isinstance(backend, TorchAttention) and self._config.fuse_layers:
                from kernelserve.model.fused.gpu_fusion import fuse_for_gpu

                fuse_for_gpu(self._model, backend, block_size=config.block_size)
        bytes_per_block = self._model.kv_cache_spec.bytes_per_block(config.block_size)
        progress("allocate KV cache", None)
        with self._phase("allocate KV cache"):
            size = self._plan_kv_cache(bytes_per_block)
            with _out_of_memory(f"{format_bytes(size.num_blocks * bytes_per_block)} of KV cache"):
                self._model.allocate(
                    backend, num_blocks=size.num_blocks, block_size=config.block_size
                )
        self.runner = ModelRunner(self._model, config, max_model_len=size.max_model_len)
        progress("warm up", None)
        with self._phase("warm up"), _out_of_memory("the first forward pass"):
            self._warm_up(size.max_model_len)
        self.model_info = self._describe(size, bytes_per_block)

    def execute_model(self, plan: SchedulerOutput) -> None:
        """See ModelRunner."""
        self.runner.execute_model(plan)

    def sample_tokens(self) -> ModelRunnerOutput:
        """See ModelRunner."""
        return self.runner.sample_tokens()

    def shutdown(self) -> None:
        """Let go of the KV cache."""
        self._model.detach()

    def _plan_kv_cache(self, bytes_per_block: int) -> KVCacheSize:
        asked, limit = self._config.max_model_len, self._model.max_model_len
        if asked is not None and asked > limit:
            raise InvalidConfigError(
                f"max_model_len={asked} is above the model's own limit of {limit}: "
                f"{self._model.max_model_len_reason}"
            )
        memory = device_memory(self._model.device)
        return plan_kv_cache(
            self._config,
            bytes_per_block=bytes_per_block,
            model_max_len=limit,
            weight_bytes=self._model.weight_bytes,
            memory=replace(memory, free=max(0, memory.free - self._encoder_cache_bytes())),
            on_cpu=self._model.device.type == "cpu",
        )

    def _encoder_cache_bytes(self) -> int:
        """What the embeddings of images will take at most."""
        if self._model.vision is None:
            return 0
        hidden_size: int = self._model.hf_config.get_text_config().hidden_size
        return self._config.encoder_cache_size * hidden_size * self._model.dtype.itemsize

    def _warm_up(self, max_model_len: int) -> None:
        """Run a prompt and one token more, on the null block, which no request reads.

        On a GPU the longest step that there can be: it compiles all kernels, and shows whether the memory suffices.
        """
        length = 1
        if self._model.device.type != "cpu":
            length = max(1, min(self._config.max_num_batched_tokens, max_model_len - 1))
        blocks = [0] * -(-min(length + 1, max_model_len) // self._config.block_size)
        params = SamplingParams(seed=0)
        new = NewRequestData("warm-up", [0] * length, length, params, blocks, num_computed_tokens=0)
        known = CachedRequestData(["warm-up"], [[]], [length])
        counts = {"warm-up": length}
        self._run_step(SchedulerOutput([new], CachedRequestData(), counts, length, set(), set()))
        if length < max_model_len:
            self._run_step(SchedulerOutput([], known, {"warm-up": 1}, 1, set(), set()))
        self._run_step(SchedulerOutput([], CachedRequestData(), {}, 0, {"warm-up"}, set()))

    def _run_step(self, plan: SchedulerOutput) -> None:
        self.runner.execute_model(plan)
        self.runner.sample_tokens()

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._seconds[name] = time.perf_counter() - start

    def _describe(self, size: KVCacheSize, bytes_per_block: int) -> ModelInfo:
        model = self._model
        return ModelInfo(
            model_type=model.model_type,
            dtype=str(model.dtype).removeprefix("torch."),
            device=str(model.device),
            max_model_len=size.max_model_len,
            vocab_size=model.vocab_size,
            block_size=self._config.block_size,
            num_gpu_blocks=size.num_blocks,
            kv_cache_bytes=size.num_blocks * bytes_per_block,
            weight_bytes=model.weight_bytes,
            tokenizer_dir=model.tokenizer_dir,
            eos_token_ids=model.eos_token_ids,
            generation_defaults=model.generation_defaults,
            load_seconds=self._seconds,
            processor_dir=model.processor_dir,
            image_token_id=None if model.vision is None else model.vision.image_token_id,
            whole_images=model.vision is not None and model.vision.bidirectional,
            image_side=useful_image_side(model.processor_dir),
            torch_reason=model.torch_reason,
        )


@contextmanager
def _out_of_memory(what: str) -> Iterator[None]:
    """Turn torch's out-of-memory errors into ours."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        expected = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not expected and "can't allocate memory" not in str(error):
            raise
        raise KVCacheMemoryError(
            f"out of memory at {what}: lower gpu_memory_utilization or kv_cache_memory_bytes",
            phase="allocate KV cache",
        ) from error
