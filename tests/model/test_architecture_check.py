"""What cannot run is refused from its config alone, with the reason."""

from __future__ import annotations

import pytest
from transformers import AutoConfig

from kernelserve.errors import UnsupportedModelError
from kernelserve.model.architecture_check import (
    check_config,
    longest_context,
    resolve_model_class,
)
from tests.helpers.tiny_models import ARCHITECTURES, make_tiny_config
from tests.helpers.tiny_vision_models import VISION_ARCHITECTURES, make_tiny_vision_config


def check(config) -> None:
    check_config(config)
    resolve_model_class(config)


@pytest.mark.parametrize("arch", sorted(ARCHITECTURES))
def test_good_ones_pass(arch):
    check(make_tiny_config(arch))


@pytest.mark.parametrize(
    ("model_type", "words"),
    [
        ("mamba", "state"),
        ("mamba2", "state"),
        ("rwkv", "state"),
        ("recurrent_gemma", "state"),
        ("jamba", "state"),
        ("falcon_h1", "state"),
        ("bamba", "state"),
        ("qwen3_next", "linear_attention"),
        ("minimax", "linear_attention"),
        ("llama4_text", "chunked_attention"),
        ("gemma3n_text", "K/V of other layers"),
        ("t5", "encoder-decoder"),
        ("bart", "encoder-decoder"),
        ("bloom", "ALiBi"),
        ("mpt", "ALiBi"),
        ("gpt_neo", "attention interface"),
        ("qwen2_audio", "sound"),
        ("paligemma", "the models that can see are gemma3, idefics3, llava"),
        ("pixtral", "no model of type 'pixtral' that generates text"),
        ("blip-2", "the models that can see are gemma3, idefics3, llava"),
        ("vit", "no model of type 'vit' that generates text"),
    ],
)
def test_bad_ones_are_refused(model_type, words):
    with pytest.raises(UnsupportedModelError, match=words):
        check(AutoConfig.for_model(model_type))


@pytest.mark.parametrize("arch", sorted(VISION_ARCHITECTURES))
def test_those_that_see_pass(arch):
    check(make_tiny_vision_config(arch))


def test_a_vision_tower_with_other_arguments_is_refused():
    config = AutoConfig.for_model("llava", vision_config={"model_type": "pixtral"})
    with pytest.raises(UnsupportedModelError, match=r"vision tower of type pixtral.*clip"):
        check(config)


def test_what_a_text_model_could_not_do_a_vision_model_cannot_either():
    config = AutoConfig.for_model(
        "llava",
        vision_config={"model_type": "clip_vision_model"},
        text_config={"model_type": "mamba"},
    )
    with pytest.raises(UnsupportedModelError, match="mamba"):
        check(config)


def test_encoder_is_refused():
    config = AutoConfig.for_model("bert", architectures=["BertForMaskedLM"])
    with pytest.raises(UnsupportedModelError, match="not a causal decoder"):
        check(config)


def test_convolution_layers_are_refused():
    with pytest.raises(UnsupportedModelError, match="conv"):
        check(AutoConfig.for_model("lfm2", layer_types=["conv", "full_attention"] * 16))


def test_falcon_with_alibi_is_refused():
    with pytest.raises(UnsupportedModelError, match="ALiBi"):
        check(AutoConfig.for_model("falcon", alibi=True))


def test_context_of_batch_dependent_rope_is_capped():
    assert longest_context(make_tiny_config("llama"))[0] == 256
    dynamic = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    length, reason = longest_context(make_tiny_config("llama", rope_parameters=dynamic))
    assert (length, "longest text of a batch" in reason) == (256, True)
    longrope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 4,
        "long_factor": [2.0] * 4,
        "original_max_position_embeddings": 64,
    }
    config = make_tiny_config("phi3", rope_parameters=longrope, original_max_position_embeddings=64)
    assert longest_context(config)[0] == 64
