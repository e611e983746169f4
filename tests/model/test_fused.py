"""Models whose layers run in our own kernels, and those that must not."""

from __future__ import annotations

import pytest
import torch

from kernelserve.config import EngineConfig
from kernelserve.model.loaded_model import LoadedModel
from kernelserve.model.loader import load_model
from tests.helpers.paged_run import PagedRun
from tests.helpers.tiny_models import make_tiny_model

torch.set_num_threads(1)


def load(arch, folder, **changes) -> LoadedModel:
    make_tiny_model(arch, folder, **changes)
    return load_model(EngineConfig(model=str(folder)), lambda *_: None)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> LoadedModel:
    return load("qwen3", tmp_path_factory.mktemp("qwen3"), head_dim=64)


def test_the_originals_are_gone(model) -> None:
    assert model.fused is not None
    assert model.module.get_input_embeddings().weight.numel() == 0
    assert model.module.get_output_embeddings().weight.numel() == 0
    assert model.parameter_bytes < model.fused.weight_bytes / 20


def test_company_does_not_change_a_bit(model) -> None:
    """Batch invariance: a row alone, and as one of many requests and of a long prompt."""
    text = list(range(40, 60))
    alone = PagedRun(model, 1)
    alone.step({0: text[:-1]})
    expected = alone.step({0: text[-1:]})[0]
    crowd = PagedRun(model, 8, max_len=60)
    crowd.step(dict.fromkeys(range(7), text[:-1]))
    rows = crowd.step({7: list(range(60))} | dict.fromkeys(range(7), text[-1:]))
    assert all(torch.equal(rows[i], expected) for i in range(7))


def test_without_a_cache_nothing_is_computed(tmp_path) -> None:
    model = load("llama", tmp_path)
    run = PagedRun(model, 1)
    run.step({0: [1]})
    model.detach()
    with pytest.raises(AssertionError, match="without a KV cache"):
        run.step({0: [2]})


def test_a_token_without_an_embedding_is_an_error(model) -> None:
    with pytest.raises(IndexError, match="row 1000000 of a matrix that has 288"):
        PagedRun(model, 1).step({0: [10**6]})


def test_what_looks_alike_but_computes_otherwise_is_found_out(tmp_path, caplog) -> None:
    """Granite has the modules of Llama, and multiplies what it adds to the residual stream."""
    model = load("granite", tmp_path, num_attention_heads=2, num_key_value_heads=1)
    assert model.fused is None
    assert "our kernels are off by" in caplog.text
    assert PagedRun(model, 1).step({0: [1, 2, 3]})[0].isfinite().all()


def test_without_a_compiler_the_layers_run_in_torch(tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with caplog.at_level("INFO"):
        assert load("llama", tmp_path).fused is None
    assert "no C++ compiler: no-such-compiler not found" in caplog.text


def test_bfloat16_is_left_to_torch(tmp_path) -> None:
    make_tiny_model("llama", tmp_path)
    config = EngineConfig(model=str(tmp_path), dtype="bfloat16")
    assert load_model(config, lambda *_: None).fused is None
