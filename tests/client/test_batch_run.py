"""The progress bar of a batch says what can be known."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
import tqdm.auto

from kernelserve.client.batch_run import BatchRun
from kernelserve.client.processed_request import ProcessedRequest
from kernelserve.errors import (
    BatchError,
    EngineDeadError,
    EngineRequestError,
    InvalidRequestError,
    RefusedBatchError,
)
from kernelserve.outputs import CompletionOutput, RequestOutput
from kernelserve.sampling_params import SamplingParams


class QuickSession:
    """Answers within the call that submits: 12 prompt tokens, 3 generated ones each, or the error of `failing`."""

    def __init__(self, **failing: Exception) -> None:
        self.aborted: list[str] = []
        self._failing = failing

    def abort(self, request_ids: Sequence[str]) -> None:
        self.aborted += request_ids

    def submit(self, requests: Sequence[tuple[ProcessedRequest, Any]]) -> None:
        for request, sink in requests:
            if (error := self._failing.get(request.request_id)) is not None:
                sink.fail(error)
                continue
            answer = CompletionOutput(0, "abc", [1, 2, 3])
            sink.put(RequestOutput(request.request_id, None, [7] * 12, [answer], finished=True))


@pytest.fixture
def terminal(monkeypatch) -> io.StringIO:
    """What a terminal would show."""
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True, raising=False)
    real = tqdm.auto.tqdm

    def bar(**options: Any) -> Any:
        return real(**options | {"file": shown, "mininterval": 0, "dynamic_ncols": False})

    monkeypatch.setattr(tqdm.auto, "tqdm", bar)
    return shown


def request(name: str) -> ProcessedRequest:
    return ProcessedRequest(name, f"{name}-0", None, [7] * 12, SamplingParams(), frozenset(), 0, [])


def run(seconds: float, num_requests: int) -> list[RequestOutput]:
    """Make a run whose answers come `seconds` after it began."""
    times = iter([100.0, *[100.0 + seconds] * num_requests])
    batch = BatchRun(QuickSession(), use_tqdm=True, clock=lambda: next(times))  # type: ignore[arg-type]
    for index in range(num_requests):
        batch.add(request(f"r{index}"))
    return batch.complete()


@pytest.mark.parametrize("seconds", [0.0, 1e-7, 0.04])
def test_a_very_short_run_has_counts_and_no_rates(terminal, seconds):
    assert len(run(seconds, 2)) == 2
    assert "2/2 [00:00<00:00, 24 tokens in, 6 out]" in terminal.getvalue()
    assert "/s" not in terminal.getvalue()


def test_a_longer_run_has_the_rates_since_it_was_sent(terminal):
    run(2.0, 200)
    assert "200/200 [" in terminal.getvalue()
    assert ", 1,200 tok/s in, 300 tok/s out]" in terminal.getvalue()


REFUSED = InvalidRequestError("there is no picture in it")
FAILED = EngineRequestError("request b failed: the encoder is out of memory")


def batch_of(session: QuickSession, *names: str, use_tqdm: bool = False) -> BatchRun:
    """Make a run of these requests; `refused` cannot be sent."""
    batch = BatchRun(session, use_tqdm=use_tqdm)  # type: ignore[arg-type]
    for name in names:
        if name == "refused":
            batch.refuse(REFUSED)
        else:
            batch.add(request(name))
    return batch


def places(error: BatchError) -> list[str | None]:
    """Whose output is where."""
    return [output.request_id if output else None for output in error.outputs]


def test_what_the_engine_fails_is_raised_when_the_others_are_answered():
    session = QuickSession(b=FAILED)
    with pytest.raises(BatchError) as caught:
        batch_of(session, "a", "b", "c").complete()
    assert str(caught.value) == (
        "1 of 3 requests failed, at index 1: request b failed: the encoder is out of memory; the other answers "
        "are in `outputs` of this error"
    )
    assert places(caught.value) == ["a", None, "c"]
    assert caught.value.errors == {1: FAILED}
    assert not isinstance(caught.value, ValueError)
    assert session.aborted == []


def test_what_is_refused_before_it_is_sent_is_raised_in_the_same_way():
    with pytest.raises(
        RefusedBatchError, match="2 of 3 requests failed, the first at index 0: "
    ) as caught:
        batch_of(QuickSession(), "refused", "b", "refused").complete()
    assert places(caught.value) == [None, "b", None]
    assert {place: str(error) for place, error in caught.value.errors.items()} == dict.fromkeys(
        (0, 2), str(REFUSED)
    )
    assert isinstance(caught.value, InvalidRequestError)
    with pytest.raises(RefusedBatchError) as refused:
        batch_of(QuickSession(), "refused").complete()
    assert str(refused.value) == f"1 of 1 requests failed, at index 0: {REFUSED}"


def test_refusals_and_failures_are_raised_together():
    with pytest.raises(
        BatchError, match=f"2 of 3 requests failed, the first at index 0: {REFUSED}; "
    ) as caught:
        batch_of(QuickSession(b=FAILED), "refused", "b", "c").complete()
    assert not isinstance(caught.value, InvalidRequestError)
    assert places(caught.value) == [None, None, "c"]


def test_the_error_of_a_request_that_is_not_in_a_list_is_raised_itself():
    alone = BatchRun(QuickSession(b=FAILED), use_tqdm=False, is_list=False)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError) as refused:
        alone.refuse(REFUSED)
    assert refused.value is REFUSED
    alone.add(request("b"))
    with pytest.raises(EngineRequestError) as failed:
        alone.complete()
    assert failed.value is FAILED


def test_the_end_of_the_engine_ends_a_batch_and_leaves_what_there_was():
    session = QuickSession(c=EngineDeadError("it was killed"))
    batch = batch_of(session, "a", "refused", "c", "d")
    with pytest.raises(EngineDeadError):
        batch.complete()
    assert [output.request_id for output in batch.outputs] == ["a"]
    assert session.aborted == ["a-0", "c-0", "d-0"]


def test_the_bar_of_a_batch_says_how_many_failed(terminal):
    with pytest.raises(BatchError):
        batch_of(QuickSession(b=FAILED), "a", "b", "refused", "d", use_tqdm=True).complete()
    assert "2/4 [00:00<" in terminal.getvalue()
    assert "24 tokens in, 6 out, 2 failed]" in terminal.getvalue()
