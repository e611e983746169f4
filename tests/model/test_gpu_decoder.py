"""Layers in Triton, interpreted: they give the logits of transformers; models built otherwise are left alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelserve.attention import AttentionBackend
from kernelserve.config import EngineConfig
from kernelserve.model.loaded_model import LoadedModel
from kernelserve.model.loader import load_model
from tests.helpers.paged_run import BLOCK_SIZE, PagedRun
from tests.helpers.tiny_models import make_tiny_model
from tests.helpers.triton_here import interpreted_triton

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def backend() -> Iterator[AttentionBackend]:
    with interpreted_triton():
        from kernelserve.attention.triton_backend import TritonAttention

        yield TritonAttention()


def load_and_fuse(arch: str, folder: Path, backend: AttentionBackend, **sizes: Any) -> LoadedModel:
    from kernelserve.model.fused.gpu_fusion import fuse_for_gpu

    make_tiny_model(arch, folder, num_hidden_layers=1, **sizes)
    model = load_model(EngineConfig(model=str(folder), fuse_layers=False), lambda *_: None)
    fuse_for_gpu(model, backend, block_size=BLOCK_SIZE)
    return model


# qwen2 has biases and a tied head, qwen3 norms of heads, mistral a window; none of the sizes is a power of two
@pytest.mark.parametrize("arch", ["mistral", "qwen2", "qwen3"])
def test_logits_equal_transformers(backend: AttentionBackend, tmp_path: Path, arch: str) -> None:
    from transformers import AutoModelForCausalLM

    model = load_and_fuse(
        arch, tmp_path, backend, hidden_size=24, head_dim=12, intermediate_size=40
    )
    assert model.fused is not None, model.torch_reason
    assert model.weight_bytes == model.parameter_bytes
    attention = model.module.get_decoder().layers[0].self_attn
    merged = {
        getattr(attention, f"{part}_proj").weight.untyped_storage().data_ptr() for part in "qkv"
    }
    assert len(merged) == 1, "merged weights are held once"
    ids = torch.randint(0, 256, (15,), generator=torch.Generator().manual_seed(1)).tolist()
    run = PagedRun(model, 2, backend=backend)
    parts = [run.step({0: ids[:9]}), run.step({1: ids[:3], 0: ids[9:14]}), run.step({0: ids[14:]})]
    got = torch.cat([part[0] for part in parts])
    reference = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    with torch.inference_mode():
        expected = reference(torch.tensor([ids]), use_cache=False).logits[0]
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("arch", "words"), [("granite", "off by"), ("gpt_neox", "has no")])
def test_other_models_stay_with_torch(
    backend: AttentionBackend, tmp_path: Path, arch: str, words: str
) -> None:
    model = load_and_fuse(arch, tmp_path, backend)
    assert model.fused is None
    assert words in model.torch_reason
    rows = PagedRun(model, 1, backend=backend).step({0: [1, 2, 3]})[0]
    assert rows.isfinite().all()
