"""A request that has been checked and tokenized: what the output side needs, and what goes to the engine."""

from __future__ import annotations

from dataclasses import dataclass

from kernelserve.protocol import EngineCoreRequest
from kernelserve.sampling_params import SamplingParams

__all__ = ["ProcessedRequest"]


@dataclass(slots=True)
class ProcessedRequest:
    """One request of a caller. With n > 1 the engine gets n children of it and never the request itself."""

    request_id: str
    """The caller's id; need not be unique."""
    internal_id: str
    """The caller's id and a random suffix."""
    prompt: str | None
    """The text, if the caller gave one."""
    prompt_token_ids: list[int]
    params: SamplingParams
    """A copy of the caller's, completed for the engine; `n` is still the caller's."""
    model_stop_token_ids: frozenset[int]
    """Ids in `params.stop_token_ids` that the model ends with and the caller did not ask for."""
    arrival_time: float
    """Wall clock."""
    requests: list[EngineCoreRequest]
    """One for each answer, by index."""
