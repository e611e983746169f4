"""What an engine can serve: lengths, KV blocks, vocabulary. Each refusal gives the numbers."""

from __future__ import annotations

from collections.abc import Iterable

from kernelserve.errors import InvalidRequestError
from kernelserve.protocol import EngineReady
from kernelserve.sampling_params import SamplingParams

__all__ = ["RequestLimits"]


class RequestLimits:
    """The limits of one engine. All checks raise InvalidRequestError: value, limit, remedy."""

    def __init__(self, ready: EngineReady) -> None:
        self._max_model_len = ready.max_model_len
        self._vocab_size = ready.vocab_size
        self._block_size = ready.block_size
        self._num_blocks = ready.num_gpu_blocks - 1  # without the null block
        self._num_kv_tokens = self._num_blocks * self._block_size
        self._max_logprobs = ready.config.max_logprobs

    def check_prompt(self, token_ids: list[int]) -> None:
        """Refuse a prompt that is empty, too long, or holds an unknown id."""
        length = len(token_ids)
        if not length:
            raise InvalidRequestError("the prompt is empty: it must have at least one token")
        if length >= self._max_model_len:
            raise InvalidRequestError(
                f"the prompt has {length} tokens, but max_model_len is {self._max_model_len} and "
                f"the answer needs at least one of them: shorten the prompt to at most "
                f"{self._max_model_len - 1}, or start the engine with a larger max_model_len"
            )
        needed = length // self._block_size + 1  # the answer needs a place as well
        if needed > self._num_blocks:
            raise InvalidRequestError(
                f"the prompt has {length} tokens and needs {needed} KV blocks of "
                f"{self._block_size}, but the engine has only {self._num_blocks}: shorten it to at "
                f"most {self._num_kv_tokens - 1} tokens, or start the engine with more memory "
                "(kv_cache_memory_bytes, num_gpu_blocks)"
            )
        self.check_ids("the prompt", token_ids)

    def check_params(self, params: SamplingParams) -> None:
        """Refuse token ids outside the vocabulary and more logprobs than the engine gives."""
        self.check_ids("stop_token_ids", params.stop_token_ids or ())
        self.check_ids("logit_bias", params.logit_bias or ())
        self.check_ids("allowed_token_ids", params.allowed_token_ids or ())
        limit = self._vocab_size if self._max_logprobs == -1 else self._max_logprobs
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(params, name)
            asked = self._vocab_size if value == -1 else value
            if asked is not None and asked > limit:
                raise InvalidRequestError(
                    f"{name}={value} asks for {asked} alternatives, but max_logprobs is {limit}: "
                    "ask for fewer, or start the engine with a larger max_logprobs"
                )

    def check_ids(self, name: str, token_ids: Iterable[int]) -> None:
        """Refuse ids that the model does not have."""
        ids = list(token_ids)
        if not ids or (min(ids) >= 0 and max(ids) < self._vocab_size):
            return
        wrong = next(i for i in ids if not 0 <= i < self._vocab_size)
        raise InvalidRequestError(
            f"{name}: token id {wrong} is not in the vocabulary of {self._vocab_size} tokens: "
            f"ids go from 0 to {self._vocab_size - 1}"
        )

    def max_tokens(self, params: SamplingParams, num_prompt_tokens: int) -> int:
        """Return how many tokens the answer may have: as asked, at most what there is room for."""
        room = min(self._max_model_len, self._num_kv_tokens) - num_prompt_tokens
        if params.min_tokens > room:
            raise InvalidRequestError(
                f"min_tokens={params.min_tokens}, but after a prompt of {num_prompt_tokens} tokens "
                f"there is room for {room}: max_model_len is {self._max_model_len}, the KV cache "
                f"holds {self._num_kv_tokens} tokens"
            )
        return room if params.max_tokens is None else min(params.max_tokens, room)
