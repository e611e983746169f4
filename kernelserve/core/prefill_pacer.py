"""How much of a prompt fits into a step without holding up the answers that are being written."""

from __future__ import annotations

__all__ = ["PrefillPacer"]

_LEAST_TOKENS = 16
"""A prompt always goes on, if slowly."""
_TELLING_TOKENS = 16
"""Fewer prompt tokens than these say little about what one of them costs."""
_NEWNESS = 0.3
"""Weight of the newest measurement."""


class PrefillPacer:
    """Learns from the times of past steps. With `stretch` 3, a step with parts of prompts in it is to take three times
    as long as one without, at most.

    A step is taken to cost what the answers alone cost, and the same for each prompt token besides.
    """

    def __init__(self, stretch: float) -> None:
        self._stretch = stretch
        self._answers_s = 0.0
        """Seconds of a step that only continues answers, 0: none seen yet."""
        self._token_s = 0.0
        """Seconds that a prompt token adds."""

    def observe(self, num_prompt_tokens: int, num_decode_tokens: int, seconds: float) -> None:
        """Take in how long a step took."""
        if num_prompt_tokens == 0:
            self._answers_s = _blend(self._answers_s, seconds)
        elif num_prompt_tokens >= _TELLING_TOKENS:
            besides = self._answers_s if num_decode_tokens else 0.0
            cost = max(0.0, seconds - besides) / num_prompt_tokens
            self._token_s = _blend(self._token_s, cost)

    def allowance(self) -> int | None:
        """Return how many prompt tokens a step may have beside answers; None: no limit."""
        if self._stretch <= 1 or not self._answers_s or not self._token_s:
            return None
        spare = (self._stretch - 1) * self._answers_s
        return max(_LEAST_TOKENS, int(spare / self._token_s))


def _blend(old: float, new: float) -> float:
    return new if not old else old + _NEWNESS * (new - old)
