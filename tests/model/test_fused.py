"""Models whose layers run in our own kernels, and those that must not."""

from __future__ import annotations

import pytest
import torch

from kernelserve.config import EngineConfig
from kernelserve.model.loaded_model import LoadedModel
from kernelserve.model.loader import load_model
from tests.helpers.fresh_cache import use_fresh_cache
from tests.helpers.paged_run import PagedRun
from tests.helpers.tiny_models import make_tiny_model

torch.set_num_threads(1)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Every start is the first one of its model."""
    with pytest.MonkeyPatch.context() as patch:
        use_fresh_cache(tmp_path_factory.mktemp("cache") / "new", patch)
        yield


def load(arch, folder, **changes) -> LoadedModel:
    make_tiny_model(arch, folder, **changes)
    return load_model(EngineConfig(model=str(folder)), lambda *_: None)


@pytest.fixture(scope="module", params=["qwen3", "mistral"])
def model(request, tmp_path_factory) -> LoadedModel:
    """Without a window, and with one: the tiles of keys begin at the same positions in both."""
    return load(request.param, tmp_path_factory.mktemp(request.param), head_dim=64)


def test_the_originals_are_gone(model) -> None:
    assert model.fused is not None
    assert model.module.get_input_embeddings().weight.numel() == 0
    assert model.module.get_output_embeddings().weight.numel() == 0
    assert model.parameter_bytes < model.fused.weight_bytes / 20


TEXT = [(37 * i) % 251 for i in range(150)]


@pytest.fixture(scope="module")
def alone(model) -> torch.Tensor:
    """Logits of the text, computed at once and by itself."""
    return PagedRun(model, 1, max_len=160).feed(0, TEXT, len(TEXT))


@pytest.mark.parametrize("chunk", [1, 7, 64, 149])
def test_chunks_do_not_change_a_bit(model, alone, chunk) -> None:
    assert torch.equal(PagedRun(model, 1, max_len=160).feed(0, TEXT, chunk), alone)


def test_company_does_not_change_a_bit(model, alone) -> None:
    run = PagedRun(model, 3, max_len=160)
    run.step({0: TEXT[:-1], 1: TEXT[20:149], 2: TEXT[:3]})
    rows = run.step({2: TEXT[3:90], 1: TEXT[:1], 0: TEXT[-1:]})
    assert torch.equal(rows[0], alone[-1:])


def test_a_prefix_computed_for_several_does_not_change_a_bit(model, alone) -> None:
    """Three requests begin with the same blocks, so one look at those keys serves all; a fourth has its own."""
    run = PagedRun(model, 4, max_len=80)
    run.table = torch.cat([run.table, torch.zeros_like(run.table)], dim=1)
    run.step({0: TEXT[:70], 3: TEXT[:73]})
    run.table[1:3, :17] = run.table[0, :17]  # 68 tokens
    run.lens[1:3] = [68, 68]
    run.step({1: TEXT[68:71], 2: TEXT[68:70]})
    for _ in range(3):
        at = list(run.lens)
        rows = run.step({i: TEXT[at[i] : at[i] + 1] for i in (2, 0, 3, 1)})
        for i, logits in rows.items():
            assert torch.equal(logits, alone[at[i] : at[i] + 1])


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


def test_what_looks_alike_but_computes_otherwise_is_found_out(tmp_path) -> None:
    """Granite has the modules of Llama, and multiplies what it adds to the residual stream."""
    model = load("granite", tmp_path, num_attention_heads=2, num_key_value_heads=1)
    assert model.fused is None
    assert "our kernels are off by" in model.torch_reason
    assert PagedRun(model, 1).step({0: [1, 2, 3]})[0].isfinite().all()


def test_without_a_compiler_the_layers_run_in_torch(tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with caplog.at_level("INFO"):
        model = load("llama", tmp_path)
    assert model.fused is None
    assert "no C++ compiler: no-such-compiler not found" in model.torch_reason
    assert model.torch_reason in caplog.text


def test_bfloat16_is_left_to_torch(tmp_path) -> None:
    make_tiny_model("llama", tmp_path)
    config = EngineConfig(model=str(tmp_path), dtype="bfloat16")
    assert load_model(config, lambda *_: None).fused is None
