"""How many blocks the KV cache gets, and errors that name every number."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelserve.config import EngineConfig
from kernelserve.errors import KVCacheMemoryError
from kernelserve.worker.kv_cache_size import CPU_DEFAULT_BYTES, KVCacheSize, plan_kv_cache
from kernelserve.worker.memory import DeviceMemory, device_memory

BLOCK = 2**20
FREE = 10 * 2**30


def plan(*, on_cpu: bool = True, model_max_len: int = 1600, **options: Any) -> KVCacheSize:
    return plan_kv_cache(
        EngineConfig(**options),
        bytes_per_block=BLOCK,
        model_max_len=model_max_len,
        weight_bytes=3 * 2**30,
        memory=DeviceMemory(total=16 * 2**30, free=FREE),
        on_cpu=on_cpu,
    )


def test_blocks_come_first_then_bytes_then_the_share_of_free_memory() -> None:
    assert plan(num_gpu_blocks=201, kv_cache_memory_bytes=1).num_blocks == 201
    assert plan(kv_cache_memory_bytes=300 * BLOCK + 5).num_blocks == 300
    assert plan(gpu_memory_utilization=0.5, on_cpu=False).num_blocks == 5 * 1024


def test_on_a_cpu_the_default_is_capped() -> None:
    assert plan().num_blocks * BLOCK == CPU_DEFAULT_BYTES
    # one request of full length may take more
    assert plan(model_max_len=16 * 5000).num_blocks == 5001
    assert plan(max_num_seqs=3).num_blocks == 301, "no more than all requests can use"


def test_max_model_len_is_shortened_to_what_fits() -> None:
    size = plan(num_gpu_blocks=51)
    assert size.max_model_len == 50 * 16
    assert plan(num_gpu_blocks=1000).max_model_len == 1600


def test_max_model_len_that_was_asked_for_must_fit() -> None:
    assert plan(num_gpu_blocks=51, max_model_len=800).max_model_len == 800
    with pytest.raises(KVCacheMemoryError) as caught:
        plan(num_gpu_blocks=51, max_model_len=801)
    text = str(caught.value)
    for part in ("num_gpu_blocks=51", "51.0 MiB", "16.00 GiB", "10.00 GiB", "3.00 GiB"):
        assert part in text
    assert "max_model_len=801" in text
    assert "max_model_len=800 would fit" in text
    assert f"kv_cache_memory_bytes={52 * BLOCK}" in text
    assert plan(kv_cache_memory_bytes=52 * BLOCK, max_model_len=801).max_model_len == 801


def test_more_than_is_free_is_refused() -> None:
    with pytest.raises(KVCacheMemoryError, match="asks for"):
        plan(kv_cache_memory_bytes=FREE + BLOCK)
    with pytest.raises(KVCacheMemoryError, match=r"asks for.*at most num_gpu_blocks=10240"):
        plan(num_gpu_blocks=20_000)


def test_not_even_one_block() -> None:
    with pytest.raises(KVCacheMemoryError, match="at least 2"):
        plan(kv_cache_memory_bytes=BLOCK)


def test_memory_of_this_machine() -> None:
    memory = device_memory(torch.device("cpu"))
    assert 0 < memory.free <= memory.total
