"""Each client hears of the outcome of the start once, however its arrival falls."""

from __future__ import annotations

from typing import Any

from kernelserve.engine.reception import Reception
from kernelserve.protocol import EngineFailure, EngineStatus

FAILURE = EngineFailure(code="start", phase="import", message="no")


class Output:
    """Notes what is sent to whom."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Any]] = []

    def send(self, index: int, message: Any) -> None:
        self.sent.append((index, message))

    def broadcast(self, message: Any) -> None:
        self.sent.append((-1, message))

    def outcomes(self) -> list[int]:
        return [index for index, message in self.sent if isinstance(message, EngineFailure)]


def _reception() -> tuple[Reception, Output]:
    output = Output()
    return Reception(output, lambda: 0.0), output  # type: ignore[arg-type]


def test_a_client_that_waits_is_told_once():
    reception, output = _reception()
    reception.welcome(0)
    assert isinstance(output.sent[0][1], EngineStatus)
    reception.conclude(FAILURE)
    assert output.outcomes() == [0]


def test_a_client_that_comes_later_is_told_at_once():
    reception, output = _reception()
    reception.conclude(FAILURE)
    assert output.outcomes() == []
    reception.welcome(3)
    assert output.outcomes() == [3]


def test_nobody_counts_as_told_before_there_is_a_way_to_them():
    """A start that failed while its client was being let in used to end the process without a word."""
    reception, output = _reception()
    reception.conclude(FAILURE)
    reception.wait_until_told(timeout=0.01)
    assert output.outcomes() == []
    reception.welcome(0)
    reception.wait_until_told(timeout=60)
    assert output.outcomes() == [0]


def test_clients_hear_at_once_where_the_tokenizer_is_and_those_who_come_later_too():
    reception, output = _reception()
    reception.report_progress("import", None)
    assert output.sent == []
    reception.report_progress("import", None, "/tokenizer")
    reception.report_progress("load weights", 0.5)
    reception.welcome(0)
    statuses = [(message.phase, message.tokenizer_dir) for _, message in output.sent]
    later = ("load weights", "/tokenizer")
    assert statuses == [("import", "/tokenizer"), later, later]
