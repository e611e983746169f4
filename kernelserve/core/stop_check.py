"""Decides whether a request ends with its newest token."""

from __future__ import annotations

from kernelserve.core.request import Request, RequestStatus

__all__ = ["check_stop"]


def check_stop(request: Request, max_model_len: int) -> bool:
    """Finish `request` if its last output token ends it; return whether it did.

    min_tokens comes before every other check except the length of the model; then the end token,
    stop_token_ids and length, so that an end token in the last permitted place is a stop.
    """
    params = request.sampling_params
    output = request.output_token_ids
    last_token, num_output = output[-1], len(output)
    if num_output >= params.min_tokens:
        if last_token == params.eos_token_id:
            request.status = RequestStatus.FINISHED_STOPPED
            return True
        if params.stop_token_ids and last_token in params.stop_token_ids:
            request.status = RequestStatus.FINISHED_STOPPED
            request.stop_reason = last_token
            return True
        if num_output >= request.max_tokens:
            request.status = RequestStatus.FINISHED_LENGTH_CAPPED
            return True
    if len(request.all_token_ids) >= max_model_len:
        request.status = RequestStatus.FINISHED_LENGTH_CAPPED
        return True
    return False
