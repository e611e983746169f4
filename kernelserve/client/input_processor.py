"""Checks and tokenizes one request, so that the engine never sees one that it cannot serve."""

from __future__ import annotations

import secrets
from typing import Any

from kernelserve.client.chat_prompt import plain_text
from kernelserve.client.image_inputs import ImageInputs
from kernelserve.client.image_prompts import EncodedPrompt, ImagePrompts
from kernelserve.client.processed_request import ProcessedRequest
from kernelserve.client.prompt import Prompt, PromptParts, split_prompt
from kernelserve.client.request_limits import RequestLimits
from kernelserve.client.tokenizer import ClientTokenizer
from kernelserve.errors import InvalidRequestError
from kernelserve.protocol import EngineCoreRequest, EngineReady
from kernelserve.sampling_params import SamplingParams

__all__ = ["InputProcessor", "ProcessedRequest", "Prompt"]


class InputProcessor:
    """Knows the model's limits and end tokens. May be used by several threads.

    The caller's SamplingParams are copied, never changed. The model's end tokens: the primary one
    goes to `eos_token_id`, the others join the copy's `stop_token_ids` unless `ignore_eos`; to the
    caller all of them are the end of the answer, with no stop_reason. All of them, ignored or not,
    go to `all_stop_token_ids`, which `min_tokens` masks.

    Without a tokenizer prompts must be token ids, and answers have no text.
    """

    def __init__(self, ready: EngineReady, tokenizer: ClientTokenizer | None) -> None:
        self._tokenizer = tokenizer
        self._limits = RequestLimits(ready)
        self._end_token_ids = [i for i in ready.eos_token_ids if 0 <= i < ready.vocab_size]
        self._client_index = ready.client_index
        self._model = ready.config.model
        self._image_prompts: ImagePrompts | None = None
        if tokenizer is not None and ready.image_token_id is not None:
            self._image_prompts = ImagePrompts(ready, tokenizer, ImageInputs(ready, tokenizer))

    def process(
        self,
        prompt: Prompt,
        params: SamplingParams,
        *,
        request_id: str,
        priority: int = 0,
        cache_salt: str | None = None,
        now: float,
    ) -> ProcessedRequest:
        """Return the request ready to be sent; `now` is wall clock.

        Raises InvalidRequestError that names the value, the limit and the remedy.
        """
        _check_envelope(request_id, priority, cache_salt)
        parts = split_prompt(prompt)
        encoded = self._encode(parts)
        token_ids = encoded.token_ids
        self._limits.check_prompt(token_ids)
        complete = self._complete_params(params, len(token_ids))
        request = ProcessedRequest(
            request_id=request_id,
            internal_id=f"{request_id}-{secrets.token_hex(4)}",
            prompt=encoded.text,
            prompt_token_ids=token_ids,
            params=complete,
            model_stop_token_ids=self._joined_end_tokens(params),
            arrival_time=now,
            requests=[],
            images=parts.images,
        )
        request.requests = [
            EngineCoreRequest(
                request_id=request.child_id(index),
                prompt_token_ids=token_ids,
                sampling_params=_child_params(complete, index),
                arrival_time=now,
                client_index=self._client_index,
                priority=priority,
                cache_salt=cache_salt,
                external_req_id=request_id,
                mm_features=encoded.features,
            )
            for index in range(complete.n)
        ]
        return request

    def prepare(self) -> None:
        """Begin to start the process that images are processed in, if the model takes any."""
        if self._image_prompts is not None:
            self._image_prompts.prepare()

    def close(self) -> None:
        """End the process that images are processed in, if there is one."""
        if self._image_prompts is not None:
            self._image_prompts.close()

    def _encode(self, parts: PromptParts) -> EncodedPrompt:
        if self._image_prompts is not None:
            return self._image_prompts.encode(parts)
        if parts.images:
            raise InvalidRequestError(
                f"the prompt has {len(parts.images)} images, but the model {self._model!r} takes none"
            )
        if parts.token_ids is not None:
            return EncodedPrompt(parts.text, parts.token_ids, [])
        if self._tokenizer is None:
            raise InvalidRequestError("this engine has no tokenizer: give the prompt as token ids")
        text = parts.text or ""
        if parts.is_marked:
            ids = self._tokenizer.encode_marked(text)
            return EncodedPrompt(plain_text(text, ""), ids, [])
        return EncodedPrompt(text, self._tokenizer.encode(text), [])

    def _complete_params(self, params: SamplingParams, num_prompt_tokens: int) -> SamplingParams:
        if not isinstance(params, SamplingParams):
            raise InvalidRequestError(f"sampling_params={params!r:.80} must be SamplingParams")
        self._limits.check_params(params)
        own_stops = params.stop_token_ids or []
        changes: dict[str, Any] = {
            "max_tokens": self._limits.max_tokens(params, num_prompt_tokens),
            "eos_token_id": None,
            "stop_token_ids": own_stops + sorted(self._joined_end_tokens(params)),
            "all_stop_token_ids": sorted({*own_stops, *self._end_token_ids}),
            "bad_words_token_ids": self._tokenize_bad_words(params),
        }
        if self._end_token_ids and not params.ignore_eos:
            changes["eos_token_id"] = self._end_token_ids[0]
        if self._tokenizer is None:
            if params.stop_strings:
                raise InvalidRequestError("stop strings need a tokenizer, this engine has none")
            changes["detokenize"] = False
        return params.clone(**changes)

    def _joined_end_tokens(self, params: SamplingParams) -> frozenset[int]:
        """Return the model's further end tokens that the caller did not name himself."""
        if params.ignore_eos:
            return frozenset()
        return frozenset(self._end_token_ids[1:]) - {
            *(params.stop_token_ids or ()),
            self._end_token_ids[0] if self._end_token_ids else -1,
        }

    def _tokenize_bad_words(self, params: SamplingParams) -> list[list[int]]:
        """Return each word as it is spelled at the start of a text and after a space."""
        if not params.bad_words:
            return []
        if self._tokenizer is None:
            raise InvalidRequestError("bad_words need a tokenizer, this engine has none")
        forms: list[list[int]] = []
        for word in params.bad_words:
            bare = word.lstrip() or word
            for spelling in (bare, f" {bare}"):
                ids = self._tokenizer.encode(spelling, add_special_tokens=False)
                if not ids:
                    raise InvalidRequestError(f"bad_words: {word!r} has no tokens in this model")
                self._limits.check_ids("bad_words", ids)
                if ids not in forms:
                    forms.append(ids)
        return forms


def _child_params(params: SamplingParams, index: int) -> SamplingParams:
    """Return what answer `index` is sampled with: a seed of its own, prompt logprobs only once."""
    if params.n == 1:
        return params
    return params.clone(
        n=1,
        seed=None if params.seed is None else _wrap_seed(params.seed + index),
        prompt_logprobs=params.prompt_logprobs if index == 0 else None,
    )


def _wrap_seed(seed: int) -> int:
    return (seed + 2**63) % 2**64 - 2**63


def _check_envelope(request_id: object, priority: object, cache_salt: object) -> None:
    if not isinstance(request_id, str) or not request_id:
        raise InvalidRequestError(f"request_id={request_id!r} must be a non-empty string")
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise InvalidRequestError(f"priority={priority!r} must be a whole number")
    if cache_salt is not None and (not isinstance(cache_salt, str) or not cache_salt):
        raise InvalidRequestError(f"cache_salt={cache_salt!r} must be a non-empty string or None")
