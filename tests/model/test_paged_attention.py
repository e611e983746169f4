"""Models on the paged cache give the logits and the greedy answers of transformers itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from kernelserve.attention.torch_backend import TorchAttention
from kernelserve.config import EngineConfig
from kernelserve.errors import UnsupportedModelError
from kernelserve.model.loaded_model import LoadedModel
from kernelserve.model.loader import load_model
from kernelserve.model.paged_attention import PagedAttention
from tests.helpers.paged_run import PagedRun
from tests.helpers.tiny_models import ARCHITECTURES, FUSED, make_tiny_model

torch.set_num_threads(1)


def random_ids(count: int, seed: int) -> list[int]:
    return torch.randint(0, 256, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


class Pair:
    """A tiny model twice: ours, and as transformers runs it."""

    def __init__(self, arch: str, folder: Path, *, fuse_layers: bool = False) -> None:
        make_tiny_model(arch, folder)
        config = EngineConfig(model=str(folder), fuse_layers=fuse_layers)
        self.ours: LoadedModel = load_model(config, lambda *_: None)
        assert (self.ours.fused is not None) == fuse_layers
        self.reference = AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32
        ).eval()

    @torch.no_grad()
    def expected(self, ids: list[int]) -> torch.Tensor:
        logits: torch.Tensor = self.reference(torch.tensor([ids]), use_cache=False).logits[0]
        return logits


@pytest.fixture(scope="module", params=[*sorted(ARCHITECTURES), *(f"fused-{a}" for a in FUSED)])
def pair(request, tmp_path_factory) -> Pair:
    arch = request.param.removeprefix("fused-")
    is_fused = request.param != arch
    return Pair(arch, tmp_path_factory.mktemp(request.param), fuse_layers=is_fused)


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Pair:
    return Pair("llama", tmp_path_factory.mktemp("llama"))


def assert_same(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    assert got.argmax(-1).tolist() == expected.argmax(-1).tolist()


def test_chunks_give_the_same_logits(pair):
    ids = random_ids(40, 1)
    expected = pair.expected(ids)
    for chunk in (1, 7, 16, 40):
        assert_same(PagedRun(pair.ours, 1).feed(0, ids, chunk), expected)


def test_company_changes_nothing(pair):
    texts = {0: random_ids(37, 2), 1: random_ids(20, 3), 2: random_ids(9, 4)}
    run = PagedRun(pair.ours, 3)
    first = run.step({1: texts[1][:13], 0: texts[0][:5]})
    second = run.step({0: texts[0][5:20], 1: texts[1][13:14], 2: texts[2][:9]})
    third = run.step({1: texts[1][14:20], 0: texts[0][20:]})
    for text, parts in {0: (first, second, third), 1: (first, second, third), 2: (second,)}.items():
        assert_same(torch.cat([part[text] for part in parts]), pair.expected(texts[text]))


def test_greedy_ids_equal_generate(pair):
    prompt = random_ids(19, 5)
    answer = pair.reference.generate(
        torch.tensor([prompt]), max_new_tokens=16, do_sample=False, eos_token_id=-1, pad_token_id=0
    )[0, len(prompt) :].tolist()
    run = PagedRun(pair.ours, 2)
    other = random_ids(40, 6)
    logits = run.step({0: prompt, 1: other[:10]})
    ours = [int(logits[0][-1].argmax())]
    for i in range(15):
        rows = {0: [ours[-1]], 1: [other[10 + i]]} if i % 3 else {0: [ours[-1]]}
        ours.append(int(run.step(rows)[0][-1].argmax()))
    assert ours == answer


def test_only_asked_rows_are_returned(llama):
    ids = random_ids(8, 8)
    full = PagedRun(llama.ours, 1).step({0: ids})[0]
    for rows in ([7], [0, 5], []):
        asked = PagedRun(llama.ours, 1).step({0: ids}, logits_rows=rows)[0]
        assert asked.shape == (len(rows), llama.ours.vocab_size)
        torch.testing.assert_close(asked, full[rows], rtol=1e-5, atol=1e-5)


def test_spec_counts_bytes(pair):
    spec = pair.ours.kv_cache_spec
    config = pair.reference.config
    assert len(spec.layers) == config.num_hidden_layers
    caches = pair.ours.allocate(TorchAttention(), num_blocks=3, block_size=4)
    total = sum(part.nbytes for cache in caches for part in cache)
    assert total == 3 * spec.bytes_per_block(4)
    assert [layer.sliding_window for layer in spec.layers].count(None) == [
        window is None for window in expected_windows(config)
    ].count(True)


def expected_windows(config) -> list[int | None]:
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None) or (
        ["sliding_attention" if window else "full_attention"] * config.num_hidden_layers
    )
    return [window if kind == "sliding_attention" else None for kind in kinds]


def test_metadata_is_reset_even_after_an_error(llama):
    run = PagedRun(llama.ours, 1)
    attention: PagedAttention = llama.ours._attention
    run.step({0: [1, 2, 3]})
    assert attention.metadata is None
    with pytest.raises(IndexError):
        run.step({0: [10**6]})
    assert attention.metadata is None
    assert_same(PagedRun(llama.ours, 1).feed(0, [5, 6, 7], 2), llama.expected([5, 6, 7]))


def test_detach_frees_the_cache(llama):
    run = PagedRun(llama.ours, 1)
    run.step({0: [1]})
    llama.ours.detach()
    with pytest.raises(KeyError):
        run.step({0: [2]})


def test_two_models_do_not_share_state(tmp_path, llama):
    other = Pair("qwen2", tmp_path)
    ids = random_ids(12, 9)
    ours, theirs = PagedRun(llama.ours, 1), PagedRun(other.ours, 1)
    for part in (ids[:6], ids[6:]):
        mine, its = ours.step({0: part})[0], theirs.step({0: part})[0]
    assert_same(mine, llama.expected(ids)[6:])
    assert_same(its, other.expected(ids)[6:])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"attention_mask": torch.zeros(1)}, "mask of its own"),
        ({"is_causal": False}, "both directions"),
        ({"position_bias": torch.zeros(1)}, "position_bias"),
    ],
)
def test_unknown_attention_is_refused(options, words):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    attend = ALL_ATTENTION_FUNCTIONS["kernelserve_paged"]
    tensor = torch.zeros(1, 1, 1, 4)
    arguments = {"attention_mask": None} | options
    with pytest.raises(UnsupportedModelError, match=words):
        attend(torch.nn.Linear(1, 1), tensor, tensor, tensor, **arguments)
