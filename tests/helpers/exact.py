"""A model, our executor for it, and what transformers itself makes of the same prompts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kernelserve.config import EngineConfig
from kernelserve.executor.uniproc import UniProcExecutor
from tests.helpers.engine_driver import EngineDriver, Result

__all__ = ["ExactModel", "greedy_answer"]

BLOCK_SIZE = 4
NUM_BLOCKS = 600
_PROMPT_IDS = 250
"""Prompts hold the ids below: no special tokens."""
_CLEAR_GAP = 1e-3


class ExactModel:
    """Runs prompts on our engine and on transformers, both in float32 on one thread."""

    def __init__(self, model: str | Path, *, block_size: int = BLOCK_SIZE, **options: Any) -> None:
        config = EngineConfig(
            model=str(model),
            dtype="float32",
            device="cpu",
            block_size=block_size,
            num_gpu_blocks=NUM_BLOCKS,
            num_threads=1,
            **options,
        )
        self.executor = UniProcExecutor(config, lambda *_: None)
        self._folder = Path(model)
        self._plain: Any = None
        self._answers: dict[tuple[int, ...], tuple[list[int], float]] = {}

    @property
    def plain(self) -> Any:
        """The same weights in transformers, untouched."""
        if self._plain is None:
            from transformers import AutoModelForCausalLM

            self._plain = AutoModelForCausalLM.from_pretrained(
                str(self._folder), attn_implementation="eager", dtype=torch.float32
            ).eval()
            self._plain.generation_config.eos_token_id = None
        return self._plain

    def driver(self, **options: Any) -> EngineDriver:
        """Return a fresh scheduler over the executor, which must be idle."""
        assert self.executor.num_known_requests == 0
        return EngineDriver(self.executor, **options)

    def clear_prompts(
        self, lengths: Sequence[int], num_tokens: int, *, prefix: Sequence[int] = (), seed: int = 0
    ) -> list[list[int]]:
        """Return random prompts whose best token is never nearly tied with the second.

        Rounding differs between a chunk, a batch and a plain forward pass, and must not decide.
        """
        rng = random.Random(seed)
        prompts = []
        for length in lengths:
            while True:
                prompt = [*prefix, *(rng.randrange(_PROMPT_IDS) for _ in range(length))]
                if self._answer(prompt, num_tokens)[1] > _CLEAR_GAP:
                    break
            prompts.append(prompt)
        return prompts

    def expected(self, prompt: list[int], num_tokens: int) -> list[int]:
        """Return the greedy answer of `model.generate`."""
        return self._answer(prompt, num_tokens)[0]

    def _answer(self, prompt: list[int], num_tokens: int) -> tuple[list[int], float]:
        """Return the answer, and by how much its tokens were better than the second best."""
        key = (num_tokens, *prompt)
        if key not in self._answers:
            self._answers[key] = greedy_answer(self.plain, prompt, num_tokens)
        return self._answers[key]

    def plain_logprobs(self, token_ids: list[int]) -> torch.Tensor:
        """Return log-softmax [n, vocab] of one plain forward pass."""
        with torch.inference_mode():
            logits = self.plain(torch.tensor([token_ids])).logits[0]
        result: torch.Tensor = logits.float().log_softmax(-1)
        return result

    def check(self, prompts: list[list[int]], results: list[Result], num_tokens: int) -> None:
        """Assert that every result is the greedy answer."""
        for prompt, result in zip(prompts, results, strict=True):
            assert result.token_ids == self.expected(prompt, num_tokens), f"prompt {prompt}"


def greedy_answer(
    model: Any, prompt: Sequence[int], num_tokens: int, **inputs: torch.Tensor
) -> tuple[list[int], float]:
    """Return what `model.generate` answers, and by how much its tokens were better than the second best."""
    ids = torch.tensor([list(prompt)])
    with torch.inference_mode():
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=num_tokens,
            pad_token_id=0,
            output_scores=True,
            return_dict_in_generate=True,
            **inputs,
        )
    best = torch.cat(output.scores).topk(2, dim=-1).values
    return output.sequences[0, ids.shape[1] :].tolist(), float((best[:, 0] - best[:, 1]).min())
