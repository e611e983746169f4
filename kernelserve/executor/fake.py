"""A model runner without a model, to test and measure all that is around it. Imports no torch."""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass
from pathlib import Path

from kernelserve.config import EngineConfig
from kernelserve.core.scheduler_output import (
    CachedRequestData,
    ModelRunnerOutput,
    NewRequestData,
    SchedulerOutput,
)
from kernelserve.errors import InvalidConfigError
from kernelserve.executor.executor import ModelInfo, Progress
from kernelserve.protocol import LogprobsLists
from kernelserve.sampling_params import SamplingParams
from kernelserve.wire import WireArray

__all__ = ["FAKE_EOS_TOKEN_ID", "FakeExecutor", "fake_next_token"]

FAKE_EOS_TOKEN_ID = 2
"""End token of the fake model; it never comes out by itself."""
_FIRST_TOKEN = 10
_VOCAB_SIZE = 1000
_MAX_MODEL_LEN = 8192
_NUM_BLOCKS = 4096
_BYTES_PER_TOKEN = 1024


def fake_next_token(
    last_token: int, position: int, vocab_size: int = _VOCAB_SIZE, first_token: int = _FIRST_TOKEN
) -> int:
    """Return what the fake model says after `last_token` at `position`: in [first_token, vocab_size)."""
    mixed = (last_token * 1103515245 + position * 12345 + 2654435761) & 0xFFFFFFFF
    mixed ^= mixed >> 15
    return first_token + mixed * 2246822519 % 4294967291 % (vocab_size - first_token)


@dataclass(slots=True)
class _FakeRequest:
    token_ids: list[int]
    block_count: int
    num_computed_tokens: int
    sampling_params: SamplingParams
    wants_prompt_logprobs: bool


class FakeExecutor:
    """Follows each plan like a real runner and asserts that the plan keeps its invariants.

    The next token is `fake_next_token` of the last one and its position, so any schedule gives the
    same answers. `step_seconds` is slept in each `sample_tokens` that has work. With a tokenizer its
    tokens are the vocabulary from `first_token` on. Raises InvalidConfigError if there is no tokenizer.json.
    """

    def __init__(
        self,
        config: EngineConfig,
        progress: Progress,
        *,
        step_seconds: float = 0.0,
        tokenizer_dir: str = "",
        first_token: int = _FIRST_TOKEN,
    ) -> None:
        self.step_seconds = step_seconds
        self._first_token = first_token
        self._requests: dict[str, _FakeRequest] = {}
        self._plan: SchedulerOutput | None = None
        num_blocks = config.num_gpu_blocks or _NUM_BLOCKS
        block_bytes = config.block_size * _BYTES_PER_TOKEN
        if config.num_gpu_blocks is None and config.kv_cache_memory_bytes is not None:
            num_blocks = max(2, config.kv_cache_memory_bytes // block_bytes)
        progress("warm up", 1.0)
        self.model_info = ModelInfo(
            model_type="fake",
            dtype="float32",
            device="cpu",
            max_model_len=config.max_model_len
            or min(_MAX_MODEL_LEN, (num_blocks - 1) * config.block_size),
            vocab_size=_count_tokens(tokenizer_dir) if tokenizer_dir else _VOCAB_SIZE,
            block_size=config.block_size,
            num_gpu_blocks=num_blocks,
            kv_cache_bytes=num_blocks * block_bytes,
            weight_bytes=0,
            tokenizer_dir=tokenizer_dir,
            eos_token_ids=[FAKE_EOS_TOKEN_ID],
            load_seconds={"warm up": 0.0},
        )

    @property
    def num_known_requests(self) -> int:
        """Requests that the runner still holds state of."""
        return len(self._requests)

    def execute_model(self, plan: SchedulerOutput) -> None:
        """Take over the plan's changes."""
        assert self._plan is None, "execute_model before sample_tokens of the last step"
        counts = plan.num_scheduled_tokens
        assert sum(counts.values()) == plan.total_num_scheduled_tokens
        assert len(counts) == len(plan.scheduled_new_reqs) + len(plan.scheduled_cached_reqs.req_ids)
        for req_id in (*plan.finished_req_ids, *plan.preempted_req_ids):
            self._requests.pop(req_id, None)
        for new in plan.scheduled_new_reqs:
            self._add(new)
        self._update(plan.scheduled_cached_reqs)
        for req_id, count in counts.items():
            request = self._requests[req_id]
            end = request.num_computed_tokens + count
            assert count > 0, f"{req_id}: {count} tokens"
            assert end <= len(request.token_ids), (
                f"{req_id}: {end} of {len(request.token_ids)} tokens"
            )
            assert end <= request.block_count * self.model_info.block_size, (
                f"{req_id}: blocks too few"
            )
        self._plan = plan

    def sample_tokens(self) -> ModelRunnerOutput:
        """Give one token to each request whose tokens are all computed."""
        plan, self._plan = self._plan, None
        assert plan is not None, "sample_tokens without execute_model"
        if self.step_seconds and plan.total_num_scheduled_tokens:
            time.sleep(self.step_seconds)
        output = ModelRunnerOutput(req_ids=list(plan.num_scheduled_tokens), sampled_token_ids=[])
        for req_id, count in plan.num_scheduled_tokens.items():
            request = self._requests[req_id]
            request.num_computed_tokens += count
            tokens = request.token_ids
            if request.num_computed_tokens < len(tokens):
                output.sampled_token_ids.append([])
                continue
            if request.wants_prompt_logprobs:
                request.wants_prompt_logprobs = False
                num_alternatives = request.sampling_params.prompt_logprobs or 0
                output.prompt_logprobs[req_id] = self._logprobs(tokens[1:], num_alternatives)
            vocab_size = self.model_info.vocab_size
            token = fake_next_token(tokens[-1], len(tokens), vocab_size, self._first_token)
            tokens.append(token)
            output.sampled_token_ids.append([token])
            if (k := request.sampling_params.logprobs) is not None:
                output.logprobs[req_id] = self._logprobs([token], k)
        return output

    def _logprobs(self, token_ids: list[int], k: int) -> LogprobsLists:
        return _fake_logprobs(token_ids, k, self.model_info.vocab_size)

    def shutdown(self) -> None:
        """Forget all requests."""
        self._requests.clear()

    def _add(self, new: NewRequestData) -> None:
        assert new.req_id not in self._requests, f"{new.req_id} is new but known"
        assert 0 <= new.num_computed_tokens < len(new.token_ids)
        assert 0 not in new.block_ids, f"{new.req_id} was given the null block"
        first_time = len(new.token_ids) == new.num_prompt_tokens
        self._requests[new.req_id] = _FakeRequest(
            token_ids=list(new.token_ids),
            block_count=len(new.block_ids),
            num_computed_tokens=new.num_computed_tokens,
            sampling_params=new.sampling_params,
            wants_prompt_logprobs=first_time and new.sampling_params.prompt_logprobs is not None,
        )

    def _update(self, cached: CachedRequestData) -> None:
        rows = zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True)
        for req_id, block_ids, num_computed_tokens in rows:
            request = self._requests[req_id]
            assert num_computed_tokens == request.num_computed_tokens, (
                f"{req_id}: the plan says {num_computed_tokens} computed tokens, the runner has "
                f"{request.num_computed_tokens}"
            )
            request.block_count += len(block_ids)


def _count_tokens(tokenizer_dir: str) -> int:
    from tokenizers import Tokenizer  # only some fake models need it

    path = Path(tokenizer_dir) / "tokenizer.json"
    if not path.is_file():
        raise InvalidConfigError(f"tokenizer={tokenizer_dir}: there is no {path}")
    return int(Tokenizer.from_file(str(path)).get_vocab_size())


def _fake_logprobs(token_ids: list[int], k: int, vocab_size: int) -> LogprobsLists:
    """Give each token rank 1 and the k ids from itself upwards as the alternatives."""
    width = (vocab_size if k == -1 else min(k, vocab_size)) + 1
    ids = array("i")
    values = array("f")
    for token in token_ids:
        ids.append(token)
        ids.extend((token + i) % vocab_size for i in range(width - 1))
        values.append(-0.5)
        values.extend(-0.5 - i for i in range(width - 1))
    rows = len(token_ids)
    return LogprobsLists(
        token_ids=WireArray("int32", (rows, width), ids.tobytes()),
        logprobs=WireArray("float32", (rows, width), values.tobytes()),
        ranks=WireArray("int32", (rows,), array("i", [1] * rows).tobytes()),
    )
