from __future__ import annotations

from typing import Any

import pytest

from kernelserve.core.request import Request
from kernelserve.core.stop_check import check_stop
from kernelserve.protocol import FinishReason
from kernelserve.sampling_params import SamplingParams

STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


def ended(
    outputs: list[int], *, max_model_len: int = 100, **params: Any
) -> tuple[FinishReason | None, int | str | None]:
    """The end of a request with a prompt of two tokens after `outputs`, if it has one."""
    request = Request("a", [1, 2], SamplingParams(**params), block_size=4)
    for token in outputs:
        request.append_output_token(token)
    stopped = check_stop(request, max_model_len)
    assert stopped == request.is_finished
    return request.finish_reason, request.stop_reason


def test_nothing_ends_an_ordinary_token() -> None:
    assert ended([7, 8], eos_token_id=9, stop_token_ids=[6], max_tokens=3) == (None, None)


def test_trap_34_end_token_stop_id_and_length() -> None:
    assert ended([9], eos_token_id=9) == (STOP, None)
    assert ended([6], eos_token_id=9, stop_token_ids=[5, 6]) == (STOP, 6)
    assert ended([9], eos_token_id=9, stop_token_ids=[9]) == (STOP, None)
    assert ended([7, 7], max_tokens=2) == (LENGTH, None)
    assert ended([7, 7], max_tokens=None, max_model_len=4) == (LENGTH, None)


def test_trap_34_an_end_in_the_last_permitted_place_is_a_stop() -> None:
    assert ended([7, 9], eos_token_id=9, max_tokens=2) == (STOP, None)
    assert ended([7, 6], stop_token_ids=[6], max_tokens=2) == (STOP, 6)
    assert ended([7, 9], eos_token_id=9, max_tokens=None, max_model_len=4) == (STOP, None)


def test_t19_an_ignored_end_token_does_not_stop_but_stop_ids_do() -> None:
    params: dict[str, Any] = {
        "ignore_eos": True,
        "eos_token_id": None,
        "stop_token_ids": [6],
        "max_tokens": 50,
    }
    assert ended([9], **params) == (None, None)
    assert ended([6], **params) == (STOP, 6)


@pytest.mark.parametrize(("num_output", "expected"), [(2, None), (3, STOP)])
def test_trap_33_min_tokens_precedes_every_stop(
    num_output: int, expected: FinishReason | None
) -> None:
    outputs = [9] * num_output
    assert ended(outputs, eos_token_id=9, min_tokens=3)[0] is expected
    assert ended(outputs, stop_token_ids=[9], min_tokens=3)[0] is expected


def test_trap_33_min_tokens_does_not_lift_the_model_limit() -> None:
    params: dict[str, Any] = {"min_tokens": 50, "max_tokens": 60, "eos_token_id": 9}
    assert ended([7] * 7, max_model_len=10, **params) == (None, None)
    assert ended([7] * 8, max_model_len=10, **params) == (LENGTH, None)
