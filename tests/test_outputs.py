"""Merging of outputs that a consumer did not take in time."""

from __future__ import annotations

from kernelserve.outputs import CompletionOutput, Logprob, RequestOutput


def _output(
    text: str, ids: list[int], *, index: int = 0, finish: str | None = None
) -> RequestOutput:
    logprobs = [{i: Logprob(-float(i), 1)} for i in ids]
    completion = CompletionOutput(index, text, ids, -1.0, logprobs, finish)
    return RequestOutput("r", "p", [1], [completion], finish is not None)


def test_deltas_are_joined():
    output = _output("ab", [1])
    output.merge(_output("cd", [2, 3], finish="stop"), delta=True)
    completion = output.outputs[0]
    assert (completion.text, completion.token_ids, completion.finish_reason) == (
        "abcd",
        [1, 2, 3],
        "stop",
    )
    assert completion.logprobs is not None
    assert [next(iter(entry)) for entry in completion.logprobs] == [1, 2, 3]
    assert output.finished


def test_cumulative_outputs_are_replaced():
    output = _output("ab", [1])
    output.merge(_output("abcd", [1, 2]), delta=False)
    assert output.outputs[0].text == "abcd"
    assert not output.finished


def test_another_answer_is_added():
    output = _output("a", [1])
    output.merge(_output("b", [2], index=1), delta=True)
    assert [c.index for c in output.outputs] == [0, 1]
