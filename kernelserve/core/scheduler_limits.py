"""The limits that the scheduler keeps to; they can be changed while it runs."""

from __future__ import annotations

from dataclasses import dataclass

from kernelserve.errors import InvalidConfigError

__all__ = ["SchedulerLimits"]


@dataclass(slots=True)
class SchedulerLimits:
    """Meaning as in EngineConfig. Raises InvalidConfigError when built with a bad value."""

    max_num_seqs: int
    max_num_batched_tokens: int
    long_prefill_token_threshold: int = 0

    def __post_init__(self) -> None:
        for name, least in (
            ("max_num_seqs", 1),
            ("max_num_batched_tokens", 1),
            ("long_prefill_token_threshold", 0),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidConfigError(
                    f"{name}={value!r} must be a whole number of at least {least}"
                )
        if self.max_num_seqs > self.max_num_batched_tokens:
            raise InvalidConfigError(
                f"max_num_seqs={self.max_num_seqs} is above max_num_batched_tokens="
                f"{self.max_num_batched_tokens}: each running request needs one token of the budget"
            )

    def changed(
        self,
        *,
        max_num_seqs: int | None = None,
        max_num_batched_tokens: int | None = None,
        long_prefill_token_threshold: int | None = None,
    ) -> SchedulerLimits:
        """Return a checked copy with the given values; None keeps a value."""
        threshold = long_prefill_token_threshold
        return SchedulerLimits(
            self.max_num_seqs if max_num_seqs is None else max_num_seqs,
            self.max_num_batched_tokens
            if max_num_batched_tokens is None
            else max_num_batched_tokens,
            self.long_prefill_token_threshold if threshold is None else threshold,
        )
