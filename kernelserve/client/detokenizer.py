"""Turns the tokens of one answer into text, one token at a time."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tokenizers.decoders import DecodeStream

from kernelserve.client.tokenizer import ClientTokenizer

__all__ = ["IncrementalDetokenizer"]

logger = logging.getLogger(__name__)

_REPLACEMENT = "\ufffd"
_MIN_CONTEXT = 8
"""Prompt tokens that the first token of the answer is decoded with."""
_MAX_UNSETTLED = 64
"""Tokens that may wait for their text to settle; bounds both the delay and the cost of garbage."""


class IncrementalDetokenizer:
    """Releases text as soon as no later token can change it; joined, it is the one-shot decode.

        ... prompt | settled | context | tail
                                         half a character, or a run of byte tokens

    Most tokens settle at once, in `DecodeStream`. The others wait in the tail, which is decoded
    after its context: the last settled tokens, for whether a word starts with a space is seen
    only after another one. A run of byte tokens (`<0x0A>`) waits for its end, because one bad
    byte turns the whole run into replacement characters. `DecodeStream` cannot tell what it holds
    back, fails on such runs, and repeats a prompt that ends in half a character, so it is not
    asked then.

    An error of the stream, or text that contradicts what was released, restarts the decoding;
    nothing is raised. Ids without a text give "". `spaces_between_special_tokens` has no effect:
    the decoders of `tokenizers` put no space there.
    """

    def __init__(
        self,
        tokenizer: ClientTokenizer,
        prompt_token_ids: Sequence[int],
        *,
        skip_special_tokens: bool = True,
    ) -> None:
        self._backend = tokenizer.backend
        self._skip_special_tokens = skip_special_tokens
        self._skipped_ids = tokenizer.special_token_ids if skip_special_tokens else frozenset[int]()
        self._byte_ids = tokenizer.byte_token_ids
        self._context = self._end_of_prompt(prompt_token_ids)
        self._prefix = self._decode(self._context)
        self._cut_in_character = self._prefix.endswith(_REPLACEMENT)
        self._tail: list[int] = []
        self._stream: DecodeStream | None = None  # None while there is a tail
        self._unsettled = ""
        self._restart_stream()

    @property
    def unsettled_text(self) -> str:
        """Text of the tail if it is complete characters; a later byte could make it invalid."""
        return "" if self._unsettled.endswith(_REPLACEMENT) else self._unsettled

    def feed(self, token_id: int) -> str:
        """Take one token and return the text that is settled by it."""
        if token_id in self._skipped_ids:
            return ""
        if self._stream is not None:
            chunk = None
            if token_id not in self._byte_ids:
                chunk = self._step(self._stream, token_id)
            if chunk is not None:
                self._context = [token_id]
                return chunk
            self._prefix = self._decode(self._context)
            self._stream = None
        if self._backend.id_to_token(token_id) is None:
            return ""
        self._tail.append(token_id)
        return self._settle()

    def flush(self) -> str:
        """End the answer: return what is not settled, incomplete characters as U+FFFD."""
        if not self._tail:
            return ""
        return self._commit(len(self._tail), self._decode_after_context(self._tail))

    def _step(self, stream: DecodeStream, token_id: int) -> str | None:
        try:
            return stream.step(self._backend, token_id)
        except Exception as error:  # tokenizers raises plain Exception
            logger.debug("The text stream is restarted: %s", error)
            return None

    def _settle(self) -> str:
        fresh = self._decode_after_context(self._tail)
        settled = not fresh.endswith(_REPLACEMENT) and self._tail[-1] not in self._byte_ids
        if settled and (fresh or not self._cut_in_character):
            return self._commit(len(self._tail), fresh)
        if len(self._tail) > _MAX_UNSETTLED:
            return self._commit_most()
        self._unsettled = fresh
        return ""

    def _commit_most(self) -> str:
        """Settle all but an incomplete character: at most three bytes."""
        length = len(self._tail)
        for count in range(length, length - 4, -1):
            fresh = self._decode_after_context(self._tail[:count])
            if not fresh.endswith(_REPLACEMENT):
                break
        return self._commit(count, fresh)

    def _commit(self, count: int, fresh: str) -> str:
        if fresh:
            # Half a character at the end of the prompt stays: the context must not begin within one.
            kept = self._context if self._cut_in_character else []
            self._context = kept + self._tail[:count]
            self._prefix = self._decode(self._context)
            self._cut_in_character = False
        self._tail = self._tail[count:]
        self._unsettled = ""
        if not self._tail:
            self._restart_stream()
        return fresh

    def _restart_stream(self) -> None:
        if not self._cut_in_character:
            self._stream = DecodeStream(
                ids=self._context, skip_special_tokens=self._skip_special_tokens
            )

    def _decode_after_context(self, token_ids: list[int]) -> str:
        text = self._decode(self._context + token_ids)
        if text.startswith(self._prefix):
            return text[len(self._prefix) :]
        if self._cut_in_character:  # these tokens completed the last character of the prompt
            return text[len(self._prefix.rstrip(_REPLACEMENT)) :]
        self._context, self._prefix = [], ""
        return self._decode(token_ids)

    def _decode(self, token_ids: list[int]) -> str:
        return self._backend.decode(token_ids, skip_special_tokens=self._skip_special_tokens)

    def _end_of_prompt(self, prompt_token_ids: Sequence[int]) -> list[int]:
        context: list[int] = []
        for token_id in reversed(prompt_token_ids):
            enough = _MIN_CONTEXT if token_id not in self._byte_ids else _MAX_UNSETTLED
            if len(context) >= enough:
                break
            if token_id not in self._skipped_ids:
                context.append(token_id)
        return context[::-1]
