"""The plan of one step while it is being made."""

from __future__ import annotations

from kernelserve.core.request import Request
from kernelserve.core.scheduler_output import CachedRequestData, NewRequestData, SchedulerOutput
from kernelserve.protocol import EncoderInput, MultiModalFeatureSpec, Refusal

__all__ = ["StepPlan"]


class StepPlan:
    """What was granted, to whom, and who was refused; the budget is what is left of it.

    Until `build`, nothing is advanced: a grant can be revoked without a trace.
    """

    __slots__ = (
        "admitted",
        "budget",
        "encoder_budget",
        "encoder_hits",
        "encoder_inputs",
        "granted",
        "new_req_ids",
        "num_decode_tokens",
        "preempted_req_ids",
        "prompt_budget",
        "refusals",
        "resumed_req_ids",
        "token_budget",
    )

    def __init__(self, token_budget: int, prompt_budget: int | None = None) -> None:
        self.token_budget = token_budget
        self.prompt_budget = token_budget if prompt_budget is None else prompt_budget
        """What is left for ranges of several tokens."""
        self.budget = token_budget
        """Below 0 only after an image that must not be cut."""
        self.granted: dict[str, tuple[Request, int, list[int]]] = {}
        """Of requests that the runner knows: the request, its tokens, the ids of its new blocks."""
        self.admitted: dict[str, tuple[Request, int, list[int]]] = {}
        """The same of requests that it does not know, with the ids of all blocks."""
        self.new_req_ids: list[str] = []
        self.resumed_req_ids: list[str] = []
        self.preempted_req_ids: list[str] = []
        self.refusals: list[Refusal] = []
        self.encoder_budget = token_budget
        """Embeddings that may still be encoded; below 0 after an image that is larger than all of it."""
        self.encoder_inputs: dict[str, tuple[str, MultiModalFeatureSpec]] = {}
        """Content hash -> the request that was the first to need the image, and the image."""
        self.encoder_hits: list[EncoderInput] = []
        self.num_decode_tokens = 0
        """Single tokens behind a prompt; known after `build`."""

    def grant(self, request: Request, num_tokens: int, new_block_ids: list[int]) -> None:
        """Give tokens to a running request."""
        self.granted[request.request_id] = (request, num_tokens, new_block_ids)
        self._spend(num_tokens)

    def revoke(self, request: Request) -> None:
        """Undo the grant, if there is one, of a running request that is being preempted."""
        assert request.request_id not in self.admitted
        _, num_tokens, _ = self.granted.pop(request.request_id, (request, 0, []))
        self._spend(-num_tokens)

    def admit(self, request: Request, num_tokens: int, block_ids: list[int]) -> None:
        """Give tokens to a request that has just become a running one."""
        self.admitted[request.request_id] = (request, num_tokens, block_ids)
        self._spend(num_tokens)
        ids = self.resumed_req_ids if request.num_preemptions else self.new_req_ids
        ids.append(request.request_id)

    def refuse(self, request: Request, reason: str, needed: int = 0, available: int = 0) -> None:
        """Note that a request wanted tokens and gets none."""
        self.refusals.append(Refusal(request.request_id, reason, needed, available))

    def build(
        self,
        finished_req_ids: set[str],
        preempted_req_ids: set[str],
        free_encoder_mm_hashes: list[str],
    ) -> SchedulerOutput:
        """Advance the granted requests and return the plan as data."""
        counts: dict[str, int] = {}
        req_ids: list[str] = []
        new_block_ids: list[list[int]] = []
        computed: list[int] = []
        for req_id, (request, num_tokens, block_ids) in self.granted.items():
            counts[req_id] = num_tokens
            req_ids.append(req_id)
            new_block_ids.append(block_ids)
            num_computed = request.num_computed_tokens
            computed.append(num_computed)
            request.num_computed_tokens = num_computed + num_tokens
            if num_tokens == 1 and num_computed >= request.num_prompt_tokens:
                self.num_decode_tokens += 1
        new_reqs = [self._new_request(*entry) for entry in self.admitted.values()]
        for req_id, (request, num_tokens, _) in self.admitted.items():
            counts[req_id] = num_tokens
            request.num_computed_tokens += num_tokens
        return SchedulerOutput(
            scheduled_new_reqs=new_reqs,
            scheduled_cached_reqs=CachedRequestData(req_ids, new_block_ids, computed),
            num_scheduled_tokens=counts,
            total_num_scheduled_tokens=self.token_budget - self.budget,
            finished_req_ids=finished_req_ids,
            preempted_req_ids=preempted_req_ids,
            scheduled_encoder_inputs=[feature for _, feature in self.encoder_inputs.values()],
            free_encoder_mm_hashes=free_encoder_mm_hashes,
        )

    def _spend(self, num_tokens: int) -> None:
        self.budget -= num_tokens
        if abs(num_tokens) > 1:
            self.prompt_budget -= num_tokens

    @staticmethod
    def _new_request(request: Request, _: int, block_ids: list[int]) -> NewRequestData:
        return NewRequestData(
            req_id=request.request_id,
            token_ids=request.all_token_ids.copy(),
            num_prompt_tokens=request.num_prompt_tokens,
            sampling_params=request.sampling_params,
            block_ids=block_ids,
            num_computed_tokens=request.num_computed_tokens,
            mm_features=request.mm_features,
        )
