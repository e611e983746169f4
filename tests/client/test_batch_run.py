"""The progress bar of a batch says what can be known."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
import tqdm.auto

from kernelserve.client.batch_run import BatchRun
from kernelserve.client.processed_request import ProcessedRequest
from kernelserve.outputs import CompletionOutput, RequestOutput
from kernelserve.sampling_params import SamplingParams


class QuickSession:
    """Answers within the call that submits: 12 prompt tokens, 3 generated ones for each request."""

    def submit(self, requests: Sequence[tuple[ProcessedRequest, Any]]) -> None:
        for request, sink in requests:
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


def run(seconds: float, num_requests: int) -> list[RequestOutput]:
    """Make a run whose answers come `seconds` after it began."""
    times = iter([100.0, *[100.0 + seconds] * num_requests])
    batch = BatchRun(QuickSession(), use_tqdm=True, clock=lambda: next(times))  # type: ignore[arg-type]
    for index in range(num_requests):
        ids = [7] * 12
        batch.add(
            ProcessedRequest(
                f"r{index}", f"r{index}-0", None, ids, SamplingParams(), frozenset(), 0, []
            )
        )
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
