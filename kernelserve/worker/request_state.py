"""What the runner remembers of one request from its first step to its last."""

from __future__ import annotations

from dataclasses import dataclass

from kernelserve.core.scheduler_output import NewRequestData
from kernelserve.sampling_params import SamplingParams
from kernelserve.worker.noise import seed_of_request
from kernelserve.worker.prompt_logprobs import PromptLogprobs
from kernelserve.worker.request_images import RequestImages
from kernelserve.worker.token_counts import TokenCounts

__all__ = ["RequestState"]


@dataclass(slots=True, eq=False)
class RequestState:
    """One known request. Its token ids and blocks are in the row `row` of the InputBatch."""

    req_id: str
    row: int
    sampling_params: SamplingParams
    prompt_token_ids: list[int]
    output_token_ids: list[int]
    """Tokens generated so far; grows."""
    seed: int
    """Of the noise: the caller's, or one of its own."""
    prompt_logprobs: PromptLogprobs | None = None
    """Filled chunk by chunk; None when not wanted or already delivered."""
    token_counts: TokenCounts | None = None
    """Built when penalties are first applied."""
    error: str | None = None
    """Why this request cannot be served, to be reported with its next step."""
    images: RequestImages | None = None
    """None: the prompt has none."""

    @classmethod
    def from_new_request(cls, new: NewRequestData, row: int, engine_seed: int) -> RequestState:
        """Make the state of a new request, or of one that resumes after preemption."""
        params = new.sampling_params
        prompt = new.token_ids[: new.num_prompt_tokens]
        state = cls(
            req_id=new.req_id,
            row=row,
            sampling_params=params,
            prompt_token_ids=prompt,
            output_token_ids=new.token_ids[new.num_prompt_tokens :],
            seed=seed_of_request(params.seed, new.req_id, engine_seed),
        )
        # with output the prompt has been completed before, and its logprobs delivered
        if params.prompt_logprobs is not None and not state.output_token_ids:
            state.prompt_logprobs = PromptLogprobs(prompt, params.prompt_logprobs)
        if new.mm_features:
            state.images = RequestImages(new.mm_features)
        return state
