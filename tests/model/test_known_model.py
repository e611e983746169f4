"""The second start of a model that runs in our kernels: no transformers, and not a bit of difference."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from kernelserve.config import DEFAULT_MODEL, EngineConfig
from kernelserve.errors import ModelFilesError
from kernelserve.kernels.cpu_kernels import CpuKernels
from kernelserve.model.embedded import find_embedded_gguf
from kernelserve.model.fused.known_model import KnownModel
from kernelserve.model.head_start import HeadStart
from kernelserve.model.loaded_model import LoadedModel
from kernelserve.model.loader import load_model
from tests.helpers.fresh_cache import use_fresh_cache
from tests.helpers.paged_run import PagedRun
from tests.helpers.tiny_models import make_tiny_model

torch.set_num_threads(1)

TEXT = [(37 * i) % 251 for i in range(70)]
FACTS = (
    "model_type", "vocab_size", "max_model_len", "max_model_len_reason", "tokenizer_dir", "eos_token_ids",
    "generation_defaults", "dtype", "device", "kv_cache_spec",
)  # fmt: skip


@pytest.fixture(autouse=True)
def passed(tmp_path, monkeypatch) -> Path:
    """The folder of the records of what has passed: none yet."""
    return use_fresh_cache(tmp_path / "cache", monkeypatch)


def load(model: Path | str, **options) -> LoadedModel:
    return load_model(EngineConfig(model=str(model), **options), lambda *_: None)


def logits(model: LoadedModel) -> torch.Tensor:
    return PagedRun(model, 1, max_len=80).feed(0, TEXT, 33)


def rewrite(folder: Path, change) -> None:
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, {"format": "pt"})


@pytest.mark.parametrize(
    ("arch", "dtype"),
    [
        ("llama", torch.float32),
        ("qwen2", torch.bfloat16),
        ("qwen3", torch.float16),
        ("mistral", torch.bfloat16),
    ],
)
def test_a_folder(tmp_path, arch, dtype) -> None:
    folder = make_tiny_model(arch, tmp_path / "model")
    rewrite(folder, lambda tensors: {name: value.to(dtype) for name, value in tensors.items()})
    first, second = load(folder, dtype="float32"), load(folder, dtype="float32")
    assert first.module is not None
    assert second.module is None
    assert second.fused is not None
    assert torch.equal(logits(first), logits(second))
    assert [getattr(first, fact) for fact in FACTS] == [getattr(second, fact) for fact in FACTS]
    assert second.weight_bytes == second.fused.weight_bytes < first.weight_bytes


def test_the_embedded_model_also_with_a_head_start(monkeypatch) -> None:
    config = EngineConfig(model=DEFAULT_MODEL)
    tokenizers: list[str] = []
    first, second = load(DEFAULT_MODEL), load(DEFAULT_MODEL)
    head_start = HeadStart(config, tokenizers.append)
    monkeypatch.delattr(CpuKernels, "pack")  # nothing is left to be packed
    third = load_model(config, lambda *_: None, head_start)
    assert first.module is not None
    assert second.module is third.module is None
    expected = logits(first)
    for other in (second, third):
        assert torch.equal(logits(other), expected)
        assert [getattr(first, fact) for fact in FACTS] == [getattr(other, fact) for fact in FACTS]
    assert tokenizers == [first.tokenizer_dir]


def test_no_head_start_before_the_trial_nor_for_what_goes_another_way(passed) -> None:
    path = find_embedded_gguf()
    assert path is not None

    def is_packed(**settings) -> bool:
        return bool(HeadStart(EngineConfig(**settings), folders.append).take(path, known))

    folders: list[str] = []
    load(DEFAULT_MODEL)
    [record] = passed.iterdir()
    known = msgspec.json.decode(record.read_bytes(), type=KnownModel)
    assert is_packed()
    assert len(folders) == 1
    for other in ({"fuse_layers": False}, {"dtype": "bfloat16"}, {"device": "cuda"}):
        assert not is_packed(**other)
    assert not is_packed(model=str(path.parent))
    record.unlink()
    assert not is_packed()
    assert len(folders) == 1


def test_a_head_start_imports_no_torch() -> None:
    code = "import sys, kernelserve.model.head_start; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_what_does_not_follow_from_the_config_is_read_again(tmp_path) -> None:
    """A model of the same build has passed for this one too, and is still another model."""
    first = load(make_tiny_model("llama", tmp_path / "first"))
    folder = make_tiny_model("llama", tmp_path / "second", seed=1)
    (folder / "generation_config.json").write_text('{"eos_token_id": 77, "temperature": 0.5}')
    second = load(folder)
    assert second.module is None
    assert second.eos_token_ids[0] == 77
    assert second.generation_defaults == {"temperature": 0.5}
    assert not torch.equal(logits(first), logits(second))
    (folder / "config.json").write_text(
        json.dumps(json.loads((folder / "config.json").read_text()) | {"rms_norm_eps": 0.5})
    )
    assert load(folder).module is not None


def test_other_settings_take_the_long_way(tmp_path) -> None:
    folder = make_tiny_model("llama", tmp_path / "model")
    load(folder)
    assert load(folder, dtype="bfloat16").module.dtype == torch.bfloat16
    assert load(folder, fuse_layers=False).fused is None


@pytest.mark.parametrize("content", [b"", b"{}", b'{"model_type": 3', b"\xff\xfe"])
def test_a_record_that_cannot_be_read_is_made_again(tmp_path, passed, caplog, content) -> None:
    folder = make_tiny_model("llama", tmp_path / "model")
    expected = logits(load(folder))
    [record] = passed.iterdir()
    whole = record.read_bytes()
    record.write_bytes(content)
    with caplog.at_level("INFO"):
        again = load(folder)
    assert f"{record} is no record of a model" in caplog.text
    assert again.module is not None
    assert torch.equal(logits(again), expected)
    assert record.read_bytes() == whole
    assert load(folder).module is None


def test_a_weight_under_another_name_is_left_to_transformers(tmp_path, caplog) -> None:
    """transformers finds weights without the prefix of the model; the kernels' trial saw those with it."""
    folder = make_tiny_model("llama", tmp_path / "model")
    expected = logits(load(folder))
    rewrite(folder, lambda tensors: {n.removeprefix("model."): v for n, v in tensors.items()})
    for _ in range(2):
        caplog.clear()
        with caplog.at_level("INFO"):
            model = load(folder)
        assert model.module is not None
        assert torch.equal(logits(model), expected)
    assert "after all" not in caplog.text  # now it is known that it needs transformers


def test_a_missing_weight_is_the_same_error_as_ever(tmp_path, caplog) -> None:
    folder = make_tiny_model("llama", tmp_path / "model")
    load(folder)
    rewrite(folder, lambda tensors: dict(list(tensors.items())[:-1]))
    with caplog.at_level("INFO"), pytest.raises(ModelFilesError, match="lacks 1 weights"):
        load(folder)
    assert "loaded through transformers after all" in caplog.text


def test_a_weight_of_another_shape_never_reaches_the_kernels(tmp_path, caplog) -> None:
    folder = make_tiny_model("llama", tmp_path / "model")
    load(folder)
    name = "model.layers.1.self_attn.k_proj.weight"
    rewrite(folder, lambda tensors: tensors | {name: tensors[name][:16].clone()})
    with caplog.at_level("INFO"), pytest.raises(ModelFilesError, match="cannot be loaded"):
        load(folder)
    assert f"{name} is [16, 32] in place of [32, 32]" in caplog.text


SECOND_START = """
import sys
from kernelserve.config import DEFAULT_MODEL, EngineConfig
from kernelserve.core.scheduler_output import CachedRequestData, NewRequestData, SchedulerOutput
from kernelserve.executor.uniproc import UniProcExecutor
from kernelserve.sampling_params import SamplingParams

executor = UniProcExecutor(EngineConfig(model=sys.argv[1], num_threads=1), lambda *_: None)
new = NewRequestData("a", [5, 6, 7], 3, SamplingParams(temperature=0), [1], num_computed_tokens=0)
executor.execute_model(SchedulerOutput([new], CachedRequestData(), {"a": 3}, 3, set(), set()))
left_out = {"transformers", "torch._meta_registrations"}
print(executor.sample_tokens().sampled_token_ids, sorted(left_out & sys.modules.keys()))
"""


@pytest.mark.process
def test_the_second_start_imports_no_transformers(tmp_path, passed) -> None:
    folder = make_tiny_model("llama", tmp_path / "model")
    token = int(PagedRun(load(folder), 1).feed(0, [5, 6, 7], 3)[-1].argmax())
    assert list(passed.iterdir())
    run = subprocess.run(
        [sys.executable, "-c", SECOND_START, str(folder)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert run.stdout.strip() == f"[[{token}]] []"
