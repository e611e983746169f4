"""Folders are found, checked and loaded; what is wrong is named (A8)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from kernelserve.config import EngineConfig
from kernelserve.errors import (
    InvalidConfigError,
    ModelFilesError,
    ModelNotFoundError,
    UnsupportedModelError,
    WeightsMemoryError,
)
from kernelserve.model.folder_checkpoint import FolderCheckpoint
from kernelserve.model.loaded_model import LoadedModel
from kernelserve.model.loader import load_model
from tests.helpers.fresh_cache import use_fresh_cache
from tests.helpers.tiny_models import make_tiny_model

torch.set_num_threads(1)


def load(model: Path | str, **options) -> LoadedModel:
    return load_model(EngineConfig(model=str(model), **options), lambda *_: None)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> None:
    """Every start is the first one."""
    use_fresh_cache(tmp_path / "cache", monkeypatch)


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    return make_tiny_model("llama", tmp_path_factory.mktemp("original"))


@pytest.fixture
def folder(original, tmp_path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "model"))


def edit(path: Path, **changes) -> None:
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


def test_folder(folder):
    phases = []
    model = load_model(EngineConfig(model=str(folder)), lambda *p: phases.append(p))
    assert phases == [("import", None), ("load weights", None), ("load weights", 1.0)]
    assert (model.model_type, model.vocab_size, model.max_model_len) == ("llama", 288, 256)
    assert model.tokenizer_dir == str(folder)
    assert model.dtype is torch.float32
    assert model.fused is not None
    assert model.weight_bytes == model.parameter_bytes + model.fused.weight_bytes
    assert not any(p.requires_grad for p in model.module.parameters())
    assert not model.module.training


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_dtype(folder, dtype):
    model = load(folder, dtype=dtype)
    assert {p.dtype for p in model.module.parameters()} == {getattr(torch, dtype)}
    assert model.kv_cache_spec.bytes_per_element == model.dtype.itemsize


def test_auto_dtype_is_float32_unless_the_cpu_computes_bfloat16(folder, monkeypatch):
    load(folder, dtype="bfloat16").module.save_pretrained(folder)
    for native, expected in ((False, torch.float32), (True, torch.bfloat16)):
        monkeypatch.setattr("kernelserve.model.placement.cpu_computes_bfloat16", lambda n=native: n)
        assert load(folder, device="cpu").dtype is expected


def test_t19_end_tokens_are_the_union(folder):
    edit(folder / "generation_config.json", eos_token_id=[258, 259])
    edit(folder / "config.json", eos_token_id=260)
    edit(folder / "tokenizer_config.json", eos_token="<pad>")
    assert load(folder).eos_token_ids == [258, 259, 260, 256]


def test_generation_defaults(folder):
    assert load(folder).generation_defaults == {}
    settings = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}
    edit(folder / "generation_config.json", **settings)
    assert load(folder).generation_defaults == {"temperature": 0.6, "top_k": 20, "top_p": 0.95}


def test_folder_without_tokenizer_works_on_ids(folder):
    (folder / "tokenizer.json").unlink()
    assert load(folder).tokenizer_dir == ""


def test_slow_tokenizer_is_converted_once(folder, tmp_path):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(tokenizer["vocab"]))
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in tokenizer["merges"]]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges))
    edit(folder / "tokenizer_config.json", tokenizer_class="GPT2Tokenizer")
    first = Path(load(folder).tokenizer_dir)
    assert first.parent == tmp_path / "cache" / "tokenizers"
    assert (first / "tokenizer.json").is_file()
    assert (first / "chat_template.jinja").is_file()
    stamp = (first / "tokenizer.json").stat().st_mtime_ns
    assert load(folder).tokenizer_dir == str(first)
    assert (first / "tokenizer.json").stat().st_mtime_ns == stamp


@pytest.mark.parametrize("name", ["/no/such/folder", "./nothing", "~/nothing", "nothing.gguf"])
def test_missing_path(name):
    with pytest.raises(ModelNotFoundError, match="there is no"):
        load(name)


def test_missing_hub_id_offline(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelNotFoundError, match=r"'nobody/nothing'.*HF_HUB_OFFLINE is set"):
        load("nobody/nothing")


def test_nonsense_name():
    with pytest.raises(ModelNotFoundError, match="neither a folder"):
        load("what is this?")


def test_no_config(folder):
    (folder / "config.json").unlink()
    with pytest.raises(ModelFilesError, match=r"has no config\.json"):
        load(folder)


def test_broken_config(folder):
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelFilesError, match=r"config\.json cannot be read"):
        load(folder)


def test_no_weights(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelFilesError, match="has no weights"):
        load(folder)


def test_missing_shard(folder):
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    index["weight_map"]["a"] = "model-1.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelFilesError, match=r"1 of its 2 weight files.*model-2\.safetensors"):
        load(folder)


@pytest.mark.parametrize("size", [0, 100, 20_000])
def test_cut_off_weights(folder, size):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ModelFilesError, match=r"model\.safetensors is (damaged|cut off)"):
        load(folder)


def test_weight_that_is_not_there(folder):
    edit(folder / "config.json", num_hidden_layers=4)
    with pytest.raises(ModelFilesError, match=r"lacks 9 weights.*layers\.3"):
        load(folder)


def test_weights_that_do_not_fit(folder, monkeypatch):
    monkeypatch.setattr("kernelserve.model.weights_fit.available_bytes", lambda _: 1000)
    with pytest.raises(WeightsMemoryError, match=r"they take .* KiB in torch.float32.*1000 bytes"):
        load(folder)


@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError("x"), RuntimeError("can't allocate memory")]
)
def test_out_of_memory_at_the_weights(folder, monkeypatch, error):
    def fail(*_args, **_options):
        raise error

    monkeypatch.setattr(FolderCheckpoint, "load", fail)
    with pytest.raises(WeightsMemoryError, match="out of memory at the weights"):
        load(folder)


def test_unknown_architecture(folder):
    edit(folder / "config.json", model_type="martian")
    with pytest.raises(UnsupportedModelError, match="'martian'"):
        load(folder)


def test_bad_device(folder):
    with pytest.raises(InvalidConfigError, match="not a torch device"):
        load(folder, device="toaster")


def test_a_file_that_is_no_gguf(folder):
    with pytest.raises(ModelNotFoundError, match="give the folder"):
        load(folder / "config.json")
