"""Runs the sampler on rows of logits without a model."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelserve.core.scheduler_output import NewRequestData
from kernelserve.sampling_params import SamplingParams
from kernelserve.worker.request_state import RequestState
from kernelserve.worker.sampler import Sampler, SamplerOutput
from kernelserve.worker.sampling_metadata import SamplingMetadata

__all__ = ["make_state", "sample"]


def make_state(
    params: SamplingParams,
    *,
    prompt: Sequence[int] = (0,),
    output: Sequence[int] = (),
    req_id: str = "a",
) -> RequestState:
    """Return the state of a request that has generated `output`."""
    new = NewRequestData(
        req_id=req_id,
        token_ids=[*prompt, *output],
        num_prompt_tokens=len(prompt),
        sampling_params=params,
        block_ids=[1],
        num_computed_tokens=0,
    )
    return RequestState.from_new_request(new, row=0, engine_seed=0)


def sample(
    logits: torch.Tensor,
    states: Sequence[RequestState],
    *,
    positions: Sequence[int] | None = None,
    mode: str = "raw_logprobs",
) -> SamplerOutput:
    """Sample one token for each row of `logits`, which is left as it is."""
    if positions is None:
        positions = [len(s.prompt_token_ids) + len(s.output_token_ids) for s in states]
    metadata = SamplingMetadata.build(list(states), logits.shape[1], logits.device)
    sampler = Sampler(logprobs_mode=mode)
    return sampler(logits.clone(), torch.tensor(positions), metadata)
