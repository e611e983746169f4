"""The embedded SmolLM2 gives the answers of transformers with the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelserve.config import DEFAULT_MODEL, EngineConfig
from kernelserve.executor.uniproc import UniProcExecutor
from kernelserve.model.embedded import embedded_gguf
from kernelserve.model.gguf_checkpoint import GgufCheckpoint
from tests.helpers.engine_driver import EngineDriver, greedy

NUM_TOKENS = 24
TEXTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n",
]


@pytest.fixture(scope="module")
def executor() -> Any:
    config = EngineConfig(
        model=DEFAULT_MODEL,
        dtype="float32",
        device="cpu",
        num_gpu_blocks=240,
        max_model_len=1600,
        num_threads=1,
    )
    return UniProcExecutor(config, lambda *_: None)


@pytest.fixture(scope="module")
def prompts(executor: Any) -> list[list[int]]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{executor.model_info.tokenizer_dir}/tokenizer.json")
    return [tokenizer.encode(text).ids for text in TEXTS]


@pytest.fixture(scope="module")
def expected(executor: Any, prompts: list[list[int]]) -> list[list[int]]:
    """Answers of transformers itself with the weights of the file, unpacked to float32."""
    from transformers import AutoModelForCausalLM

    file = GgufCheckpoint(embedded_gguf())
    with torch.inference_mode():
        plain = AutoModelForCausalLM.from_config(file.read_config(), attn_implementation="eager")
        plain.load_state_dict(file.unpacked(torch.float32), strict=False)
        plain.tie_weights()
        plain.eval().generation_config.eos_token_id = None
        return [
            plain.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                do_sample=False,
                max_new_tokens=NUM_TOKENS,
                pad_token_id=0,
            )[0, len(prompt) :].tolist()
            for prompt in prompts
        ]


@pytest.mark.parametrize("chunk", [0, 3])
def test_smollm2_equals_generate(
    executor: Any, prompts: list[list[int]], expected: list[list[int]], chunk: int
) -> None:
    results = EngineDriver(executor, chunk=chunk).generate(prompts, greedy(NUM_TOKENS))
    assert [result.token_ids for result in results] == expected


def test_smollm2_one_at_a_time_with_the_prefix_cache(
    executor: Any, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    driver = EngineDriver(executor)
    for i in (1, 1, 0):
        result = driver.generate([prompts[i]], greedy(NUM_TOKENS))[0]
        assert result.token_ids == expected[i]


def test_t31_the_same_long_prompt_four_times_is_as_without_the_cache(
    executor: Any, prompts: list[list[int]]
) -> None:
    """1,464 tokens that repeat themselves: a wrong hit would go unnoticed on a short prompt."""
    prompt = (prompts[1] * 200)[:1464]
    params = greedy(8)
    plain = EngineDriver(executor, enable_prefix_caching=False).generate([prompt], params)[0]
    driver = EngineDriver(executor)
    again = [driver.generate([prompt], params)[0] for _ in range(4)]
    assert [result.num_cached_tokens for result in again] == [0, 1456, 1456, 1456]
    assert [result.token_ids for result in again] == [plain.token_ids] * 4
