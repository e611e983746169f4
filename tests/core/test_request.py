from __future__ import annotations

import pytest

from kernelserve.core.request import Request, RequestStatus
from kernelserve.protocol import EngineCoreEventType, EngineCoreRequest, FinishReason
from kernelserve.sampling_params import SamplingParams


def test_everything_of_the_message_arrives() -> None:
    params = SamplingParams(max_tokens=None)
    message = EngineCoreRequest(
        "a-1", [1, 2, 3, 4, 5], params, 12.5, client_index=3, priority=-2, cache_salt="s"
    )
    request = Request.from_engine_core_request(message, block_size=4, now=99.0)
    assert (request.request_id, request.client_index, request.priority) == ("a-1", 3, -2)
    assert (request.arrival_time, request.sampling_params) == (12.5, params)
    assert request.prompt_token_ids == [1, 2, 3, 4, 5]
    (event,) = request.take_events()
    assert (event.type, event.timestamp) == (EngineCoreEventType.QUEUED, 99.0)
    assert request.max_tokens > 10**9
    plain = Request("b", [1, 2, 3, 4, 5], params, block_size=4)
    assert len(request.block_hashes) == 1
    assert request.block_hashes != plain.block_hashes, "the salt is ignored"


def test_output_tokens_extend_everything_but_the_prompt() -> None:
    prompt = [1, 2, 3]
    request = Request("a", prompt, SamplingParams(), block_size=2)
    for token in (4, 5, 6):
        request.append_output_token(token)
    assert prompt == [1, 2, 3], "the caller's list is changed"
    assert request.all_token_ids == [1, 2, 3, 4, 5, 6]
    assert request.output_token_ids == [4, 5, 6]
    assert request.prompt_token_ids == [1, 2, 3]
    assert (request.num_tokens, request.num_output_tokens) == (6, 3)
    whole = Request("b", [1, 2, 3, 4, 5, 6], SamplingParams(), block_size=2)
    assert request.block_hashes == whole.block_hashes


@pytest.mark.parametrize("status", list(RequestStatus))
def test_status_tells_the_finish_reason(status: RequestStatus) -> None:
    expected = {
        RequestStatus.FINISHED_STOPPED: FinishReason.STOP,
        RequestStatus.FINISHED_LENGTH_CAPPED: FinishReason.LENGTH,
        RequestStatus.FINISHED_ABORTED: FinishReason.ABORT,
        RequestStatus.FINISHED_ERROR: FinishReason.ERROR,
    }
    request = Request("a", [1], SamplingParams(), block_size=4)
    request.status = status
    assert request.finish_reason is expected.get(status)
    assert request.is_finished == status.is_finished == (status in expected)
