"""With the attention in Triton, interpreted, greedy answers equal `model.generate`, whatever else happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from kernelserve.attention import work_plan
from tests.helpers.engine_driver import greedy
from tests.helpers.exact import ExactModel
from tests.helpers.tiny_models import make_tiny_model
from tests.helpers.triton_here import interpreted_triton

pytestmark = pytest.mark.timeout(600)  # the interpreter is slow, and slower on a busy machine

NUM_TOKENS = 5


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], ExactModel]]:
    torch.set_num_threads(1)

    def make(arch: str) -> ExactModel:
        folder: Path = tmp_path_factory.mktemp(arch)
        make_tiny_model(arch, folder, num_hidden_layers=2)
        return ExactModel(folder, attention_backend="triton")

    with interpreted_triton(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(work_plan, "SEGMENT", 64)  # so that short texts are read in parts too
        patch.setattr(work_plan, "_SPLIT_ROWS", 4)
        yield make


# The layers of llama run in Triton too, those of the others in torch. Windows are 8 tokens: gemma2 has one in every
# other layer, and soft caps; gpt_oss has sinks, too.
@pytest.mark.parametrize("arch", ["llama", "gemma2", "gpt_oss"])
def test_chunks_and_company_change_no_answer(load: Callable[[str], ExactModel], arch: str) -> None:
    model = load(arch)
    prompts = model.clear_prompts((1, 9, 66), NUM_TOKENS)
    results = model.driver(chunk=33, max_num_batched_tokens=48, max_num_seqs=4).generate(
        prompts, greedy(NUM_TOKENS)
    )
    model.check(prompts, results, NUM_TOKENS)


def test_preemption_prefix_hits_and_logprobs(load: Callable[[str], ExactModel]) -> None:
    model = load("llama")
    shared = list(range(100, 112))
    prompts = model.clear_prompts([1, 5], NUM_TOKENS, prefix=shared)
    driver = model.driver(num_blocks=8)  # too few for both to their ends
    for again in (False, True):
        results = driver.generate(prompts, greedy(NUM_TOKENS, logprobs=2))
        model.check(prompts, results, NUM_TOKENS)
        assert all(result.num_cached_tokens >= 12 for result in results) or not again
    assert sum(request.num_preemptions for request in driver.requests.values()) > 0
    for prompt, result in zip(prompts, results, strict=True):
        expected = model.plain_logprobs(prompt + result.token_ids)[len(prompt) - 1 :]
        for row, lists in zip(expected, result.logprobs, strict=False):
            ids, values = lists.token_ids.tolist()[0], lists.logprobs.tolist()[0]
            assert values == pytest.approx(row[ids].tolist(), abs=1e-4)
