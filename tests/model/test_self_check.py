"""Unproven architectures are tried out at load."""

from __future__ import annotations

import pytest
import torch

from kernelserve.config import EngineConfig
from kernelserve.errors import UnsupportedModelError
from kernelserve.model.loader import load_model
from kernelserve.model.self_check import PROVEN, check_against_transformers
from tests.helpers.paged_run import PagedRun
from tests.helpers.tiny_models import ARCHITECTURES, TINY_MAX_MODEL_LEN, make_tiny_model
from tests.helpers.tiny_vision_models import VISION_ARCHITECTURES, make_tiny_vision_model

torch.set_num_threads(1)


def test_proven_are_those_that_are_tested():
    assert set(ARCHITECTURES) == PROVEN


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_good_models_pass(tmp_path, dtype):
    make_tiny_model("gemma2", tmp_path)
    model = load_model(EngineConfig(model=str(tmp_path), dtype=dtype), lambda *_: None)
    check_against_transformers(model)
    if dtype == "float32":
        PagedRun(model, 1).step({0: [1, 2, 3]})


@pytest.mark.parametrize("arch", sorted(VISION_ARCHITECTURES))
def test_good_models_that_see_pass(tmp_path, arch):
    make_tiny_vision_model(arch, tmp_path)
    model = load_model(EngineConfig(model=str(tmp_path), dtype="float32"), lambda *_: None)
    check_against_transformers(model)
    assert (model.max_model_len, model.eos_token_ids[:2]) == (TINY_MAX_MODEL_LEN, [258, 259])
    assert model.processor_dir == str(tmp_path)


def test_a_model_with_a_state_of_its_own_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("kernelserve.model.self_check.PROVEN", frozenset())
    make_tiny_model("llama", tmp_path)
    load_model(EngineConfig(model=str(tmp_path)), lambda *_: None)

    from transformers.models.llama.modeling_llama import LlamaMLP

    plain = LlamaMLP.forward

    def convolve(self, x):
        # Each row hears of the row before it, as in a short convolution.
        return plain(self, x + 0.5 * torch.roll(x, 1, dims=1))

    monkeypatch.setattr(LlamaMLP, "forward", convolve)
    with pytest.raises(UnsupportedModelError, match="state of its own"):
        load_model(EngineConfig(model=str(tmp_path), fuse_layers=False), lambda *_: None)
