"""Builds an EngineCore out of an EngineConfig, and the message that describes it."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable

from kernelserve.config import EngineConfig
from kernelserve.core.encoder_cache_manager import EncoderCacheManager
from kernelserve.core.kv_cache_manager import KVCacheManager
from kernelserve.core.scheduler import Scheduler
from kernelserve.engine.engine_core import EngineCore
from kernelserve.engine.fake_options import make_fake_executor
from kernelserve.executor.executor import Executor, Progress
from kernelserve.protocol import PROTOCOL_VERSION, EngineReady, LaunchSpec
from kernelserve.version import __version__

__all__ = ["describe_engine", "load_engine"]


def load_engine(
    config: EngineConfig,
    *,
    fake_model: bool,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
    eager_aborts: deque[list[str]] | None = None,
) -> EngineCore:
    """Load the model and make the scheduler for its cache. Raises what the executor raises."""
    executor = _make_executor(config, fake_model, progress)
    info = executor.model_info
    kv_cache_manager = KVCacheManager(
        info.num_gpu_blocks,
        block_size=info.block_size,
        max_model_len=info.max_model_len,
        enable_prefix_caching=config.enable_prefix_caching,
    )
    scheduler = Scheduler(
        kv_cache_manager,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_model_len=info.max_model_len,
        long_prefill_token_threshold=config.long_prefill_token_threshold,
        # A fake model's times say nothing.
        max_step_stretch=0.0 if fake_model else config.max_step_stretch,
        policy=config.policy,
        num_step_records=config.num_step_records,
        encoder_cache=EncoderCacheManager(config.encoder_cache_size if info.takes_images else 0),
        whole_images=info.whole_images,
    )
    return EngineCore(scheduler, executor, clock=clock, eager_aborts=eager_aborts)


def describe_engine(spec: LaunchSpec, core: EngineCore, *, log_path: str) -> EngineReady:
    """Make the message that tells clients what they are connected to."""
    info = core.executor.model_info
    max_model_len = core.scheduler.max_model_len
    return EngineReady(
        protocol_version=PROTOCOL_VERSION,
        engine_id=spec.engine_id,
        version=__version__,
        pid=os.getpid(),
        client_index=0,
        config=spec.config.replace(
            dtype=info.dtype, device=info.device, max_model_len=max_model_len
        ),
        model_type=info.model_type,
        max_model_len=max_model_len,
        vocab_size=info.vocab_size,
        block_size=info.block_size,
        num_gpu_blocks=info.num_gpu_blocks,
        kv_cache_bytes=info.kv_cache_bytes,
        weight_bytes=info.weight_bytes,
        tokenizer_dir=info.tokenizer_dir,
        eos_token_ids=info.eos_token_ids,
        generation_defaults=info.generation_defaults,
        load_seconds=info.load_seconds,
        log_path=log_path,
        mm_processor_dir=info.processor_dir,
        image_token_id=info.image_token_id,
        max_image_embeds=core.scheduler.max_image_embeds,
        max_images_per_prompt=spec.config.max_images_per_prompt,
        mm_cache_bytes=spec.config.mirrored_image_bytes,
        image_side=info.image_side,
        torch_reason=info.torch_reason,
    )


def _make_executor(config: EngineConfig, fake_model: bool, progress: Progress) -> Executor:
    if fake_model:
        return make_fake_executor(config, progress)
    # Imports torch: seconds that the caller wants reported as the first phase.
    progress("import", None)
    from kernelserve.executor.uniproc import UniProcExecutor

    return UniProcExecutor(config, progress)
