"""EngineConfig and the keyword options of LLM refuse what cannot work."""

from __future__ import annotations

import re

import pytest

from kernelserve.client.engine_options import EngineOptions, LaunchOptions, parse_engine_options
from kernelserve.config import EngineConfig
from kernelserve.errors import InvalidConfigError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dtype", "float8"),
        ("policy", "lifo"),
        ("logprobs_mode", "logits"),
        ("block_size", 0),
        ("max_num_seqs", -1),
        ("max_num_batched_tokens", 1.5),
        ("max_model_len", 0),
        ("kv_cache_memory_bytes", True),
        ("gpu_memory_utilization", 0),
        ("gpu_memory_utilization", 1.2),
        ("long_prefill_token_threshold", -1),
        ("encoder_cache_size", 0),
        ("max_images_per_prompt", -1),
        ("mm_processor_cache_type", "ring"),
        ("mm_processor_cache_bytes", 0),
        ("fuse_layers", 1),
        ("enable_prefix_caching", "no"),
        ("gpu_memory_utilization", "0.5"),
        ("seed", 1.5),
        ("model", None),
    ],
)
def test_a_bad_setting_is_refused_by_name(field, value):
    with pytest.raises(InvalidConfigError, match=field):
        EngineConfig(**{field: value})


def test_each_running_request_needs_a_token_of_the_budget():
    with pytest.raises(InvalidConfigError, match=r"max_num_seqs=64.*max_num_batched_tokens=32"):
        EngineConfig(max_num_seqs=64, max_num_batched_tokens=32)


def test_shared_memory_is_refused_where_there_is_none(monkeypatch):
    assert EngineConfig(mm_processor_cache_type="shm").mirrored_image_bytes == 0
    monkeypatch.delattr("os.memfd_create")
    with pytest.raises(InvalidConfigError, match="which this system does not have: use 'lru'"):
        EngineConfig(mm_processor_cache_type="shm")


def test_replace_checks_again():
    config = EngineConfig(block_size=8)
    assert config.replace(seed=3).block_size == 8
    with pytest.raises(InvalidConfigError):
        config.replace(block_size=0)


def test_options_are_sorted_into_engine_and_launcher():
    config, launch = parse_engine_options("m", {"block_size": 8, "name": "other"})
    assert (config.model, config.block_size) == ("m", 8)
    assert launch == LaunchOptions(name="other")


def test_an_unknown_option_names_the_nearest():
    with pytest.raises(InvalidConfigError, match=r"max_num_seq'.*'max_num_seqs'"):
        parse_engine_options("m", {"max_num_seq": 3})  # type: ignore[typeddict-unknown-key]


def test_the_environment_gives_what_the_caller_leaves_out(monkeypatch):
    given = '{"max_num_seqs": 8, "seed": 5, "lifetime": "linger"}'
    monkeypatch.setenv("KERNELSERVE_ENGINE_OPTIONS", given)
    config, launch = parse_engine_options("m", {"seed": 7})
    assert (config.max_num_seqs, config.seed) == (8, 7)
    assert launch.lifetime == "linger"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("max_num_seqs=8", "KERNELSERVE_ENGINE_OPTIONS='max_num_seqs=8' must be a JSON object"),
        ("[8]", "must be a JSON object"),
        ('{"max_num_seq": 8}', "did you mean 'max_num_seqs'"),
        ('{"model": "other"}', "there is no engine option 'model'"),
        ('{"max_num_seqs": 0}', "max_num_seqs=0"),
    ],
)
def test_a_mistake_in_the_environment_is_named(monkeypatch, text, complaint):
    monkeypatch.setenv("KERNELSERVE_ENGINE_OPTIONS", text)
    with pytest.raises(InvalidConfigError, match=re.escape(complaint)):
        parse_engine_options("m", {})


def test_every_field_is_an_option():
    fields = {*EngineConfig.__struct_fields__, *LaunchOptions.__dataclass_fields__} - {"model"}
    assert set(EngineOptions.__annotations__) == fields
