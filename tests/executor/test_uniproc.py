"""Loading a model: phases, what the engine is told, and failures with a reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelserve.config import EngineConfig
from kernelserve.errors import InvalidConfigError, KVCacheMemoryError, ModelNotFoundError
from kernelserve.executor.uniproc import UniProcExecutor
from tests.helpers.engine_driver import EngineDriver, greedy
from tests.helpers.tiny_models import TINY_MAX_MODEL_LEN, VOCAB_SIZE, make_tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_tiny_model("llama", tmp_path_factory.mktemp("llama"))


def load(folder: Path, **options: Any) -> UniProcExecutor:
    config = EngineConfig(model=str(folder), device="cpu", num_threads=1, **options)
    return UniProcExecutor(config, lambda *_: None)


def test_phases_and_model_info(folder: Path) -> None:
    phases: list[str] = []
    config = EngineConfig(
        model=str(folder), device="cpu", dtype="float32", num_gpu_blocks=50, num_threads=1
    )
    executor = UniProcExecutor(config, lambda phase, *_: phases.append(phase))
    expected = ["import", "load weights", "allocate KV cache", "warm up"]
    assert list(dict.fromkeys(phases)) == expected
    info = executor.model_info
    assert list(info.load_seconds) == expected
    assert (info.model_type, info.dtype, info.device) == ("llama", "float32", "cpu")
    assert (info.vocab_size, info.max_model_len) == (VOCAB_SIZE, TINY_MAX_MODEL_LEN)
    assert (info.num_gpu_blocks, info.block_size) == (50, 16)
    assert info.kv_cache_bytes % 50 == 0
    assert info.eos_token_ids == [258, 259]
    assert executor.num_known_requests == 0, "the warm-up leaves nothing behind"


def test_max_model_len_fits_the_cache(folder: Path) -> None:
    assert load(folder, num_gpu_blocks=5).model_info.max_model_len == 64
    with pytest.raises(KVCacheMemoryError, match="max_model_len=64 would fit"):
        load(folder, num_gpu_blocks=5, max_model_len=65)


def test_settings_that_cannot_work(folder: Path) -> None:
    with pytest.raises(InvalidConfigError, match=f"limit of {TINY_MAX_MODEL_LEN}"):
        load(folder, max_model_len=TINY_MAX_MODEL_LEN + 1)
    with pytest.raises(InvalidConfigError, match="attention_backend='magic'"):
        load(folder, attention_backend="magic")
    with pytest.raises(ModelNotFoundError):
        load(folder / "nothing")


def test_the_whole_length_of_the_model_can_be_used(folder: Path) -> None:
    executor = load(folder, num_gpu_blocks=17)
    result = EngineDriver(executor).generate([[1] * 250], greedy(100))[0]
    assert len(result.token_ids) == TINY_MAX_MODEL_LEN - 250


def test_shutdown_frees_and_may_be_repeated(folder: Path) -> None:
    executor = load(folder, num_gpu_blocks=5)
    executor.shutdown()
    executor.shutdown()
    assert executor.num_known_requests == 0


def test_importing_the_module_loads_no_torch() -> None:
    code = "import sys, kernelserve.executor.uniproc; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
