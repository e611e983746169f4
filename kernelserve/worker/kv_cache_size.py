"""Decides how many blocks the KV cache has and how long a request may be."""

from __future__ import annotations

from dataclasses import dataclass

from kernelserve.config import EngineConfig
from kernelserve.errors import KVCacheMemoryError
from kernelserve.model.device_memory import format_bytes
from kernelserve.worker.memory import DeviceMemory

__all__ = ["CPU_DEFAULT_BYTES", "KVCacheSize", "plan_kv_cache"]

CPU_DEFAULT_BYTES = 4 * 2**30
"""Most that the KV cache takes on a CPU by default, unless one request needs more."""


@dataclass(slots=True, frozen=True)
class KVCacheSize:
    """The size of the KV cache. `num_blocks` counts the null block, which no request can have."""

    num_blocks: int
    max_model_len: int


def plan_kv_cache(
    config: EngineConfig,
    *,
    bytes_per_block: int,
    model_max_len: int,
    weight_bytes: int,
    memory: DeviceMemory,
    on_cpu: bool,
) -> KVCacheSize:
    """Return the size that the settings ask for. Raises KVCacheMemoryError if it cannot be had.

    The memory is `num_gpu_blocks`, else `kv_cache_memory_bytes`, else `gpu_memory_utilization` of
    the free memory. On a CPU the last is the memory of everybody, so there it is at most
    CPU_DEFAULT_BYTES (or one request of full length, if that is more) and never more than
    `max_num_seqs` requests of full length can use. `max_model_len` is the model's, or as much of
    it as fits; one that is asked for must fit.
    """
    sizer = _Sizer(config, bytes_per_block, model_max_len, weight_bytes, memory)
    num_blocks, source = sizer.num_blocks(on_cpu=on_cpu)
    if num_blocks * bytes_per_block > memory.free:
        raise sizer.error(
            f"{source} asks for {format_bytes(num_blocks * bytes_per_block)}", num_blocks
        )
    max_len = min(sizer.wanted_len, (num_blocks - 1) * config.block_size)
    if max_len < 1:
        raise sizer.error(f"{source} gives no block", num_blocks)
    if config.max_model_len is not None and max_len < config.max_model_len:
        raise sizer.error(
            f"{source} gives {format_bytes(num_blocks * bytes_per_block)}, too little for one request of "
            f"max_model_len={config.max_model_len}",
            num_blocks,
        )
    return KVCacheSize(num_blocks, max_len)


@dataclass(slots=True, frozen=True)
class _Sizer:
    config: EngineConfig
    bytes_per_block: int
    model_max_len: int
    weight_bytes: int
    memory: DeviceMemory

    @property
    def wanted_len(self) -> int:
        return self.config.max_model_len or self.model_max_len

    def blocks_for(self, num_requests: int) -> int:
        """Blocks that so many requests of full length need, and the null block."""
        return num_requests * -(-self.wanted_len // self.config.block_size) + 1

    def num_blocks(self, *, on_cpu: bool) -> tuple[int, str]:
        """Return the blocks that the settings ask for, and the setting that says so."""
        config = self.config
        if config.num_gpu_blocks is not None:
            return config.num_gpu_blocks, f"num_gpu_blocks={config.num_gpu_blocks}"
        if config.kv_cache_memory_bytes is not None:
            blocks = config.kv_cache_memory_bytes // self.bytes_per_block
            return blocks, f"kv_cache_memory_bytes={config.kv_cache_memory_bytes}"
        share = config.gpu_memory_utilization
        blocks = int(share * self.memory.free) // self.bytes_per_block
        if on_cpu:
            usual = CPU_DEFAULT_BYTES // self.bytes_per_block
            blocks = min(blocks, max(usual, self.blocks_for(1)))
        return min(blocks, self.blocks_for(config.max_num_seqs)), f"gpu_memory_utilization={share}"

    def error(self, problem: str, num_blocks: int) -> KVCacheMemoryError:
        """Return the error that gives all the numbers and what would work."""
        one_request = self.blocks_for(1) * self.bytes_per_block
        fitting_blocks = self.memory.free // self.bytes_per_block
        fitting_len = max(0, min(num_blocks, fitting_blocks) - 1) * self.config.block_size
        remedy = (
            f"max_model_len={min(fitting_len, self.wanted_len)} would fit"
            if fitting_len
            else f"a KV cache needs at least {format_bytes(2 * self.bytes_per_block)}"
        )
        if one_request <= self.memory.free:
            remedy += f", or kv_cache_memory_bytes={one_request} for the full length"
        if (self.config.num_gpu_blocks or 0) > fitting_blocks:
            remedy = f"at most num_gpu_blocks={fitting_blocks}"
        return KVCacheMemoryError(
            f"The KV cache does not fit: {problem}. Memory: {format_bytes(self.memory.total)} in all, "
            f"{format_bytes(self.memory.free)} free after {format_bytes(self.weight_bytes)} of weights; "
            f"one request of {self.wanted_len} tokens needs {format_bytes(one_request)} "
            f"({format_bytes(self.bytes_per_block)} for each block of {self.config.block_size} tokens). "
            f"What would work: {remedy}.",
            phase="allocate KV cache",
        )
