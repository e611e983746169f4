"""A request that has been checked and tokenized: for the output side and for the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelserve.protocol import EngineCoreRequest
from kernelserve.sampling_params import RequestOutputKind, SamplingParams

__all__ = ["ProcessedRequest"]


@dataclass(slots=True)
class ProcessedRequest:
    """One request of a caller. The engine gets its n children, never the request itself."""

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
    images: Sequence[Any] = ()
    """As the caller gave them."""

    def child_id(self, index: int) -> str:
        """Return the id of answer `index` in the engine."""
        return self.internal_id if self.params.n == 1 else f"{index}_{self.internal_id}"

    @property
    def internal_ids(self) -> list[str]:
        """What to abort to end this request and no other."""
        return [self.internal_id]

    @property
    def output_kind(self) -> RequestOutputKind:
        """What each output holds."""
        return self.params.output_kind
