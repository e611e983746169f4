"""The fake runner follows plans, repeats itself, and notices plans that break their invariants."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kernelserve.config import EngineConfig
from kernelserve.core.scheduler_output import CachedRequestData, NewRequestData, SchedulerOutput
from kernelserve.executor.fake import FakeExecutor, fake_next_token
from kernelserve.sampling_params import SamplingParams


def make_plan(new=(), cached=None, counts=None, finished=(), preempted=()):
    counts = counts or {}
    return SchedulerOutput(
        scheduled_new_reqs=list(new),
        scheduled_cached_reqs=cached or CachedRequestData(),
        num_scheduled_tokens=counts,
        total_num_scheduled_tokens=sum(counts.values()),
        finished_req_ids=set(finished),
        preempted_req_ids=set(preempted),
    )


def make_executor() -> FakeExecutor:
    return FakeExecutor(EngineConfig(), lambda *_: None)


def new_request(tokens, *, prompt=None, computed=0, **params):
    return NewRequestData(
        req_id="a",
        token_ids=list(tokens),
        num_prompt_tokens=prompt or len(tokens),
        sampling_params=SamplingParams(**params),
        block_ids=[1, 2],
        num_computed_tokens=computed,
    )


def test_chunked_prompt_gives_no_token_until_it_is_complete() -> None:
    executor = make_executor()
    executor.execute_model(make_plan([new_request([5, 6, 7])], counts={"a": 2}))
    assert executor.sample_tokens().sampled_token_ids == [[]]
    executor.execute_model(make_plan(cached=CachedRequestData(["a"], [[]], [2]), counts={"a": 1}))
    assert executor.sample_tokens().sampled_token_ids == [[fake_next_token(7, 3)]]


def test_resumed_request_goes_on_as_if_never_preempted() -> None:
    first = fake_next_token(7, 3)
    executor = make_executor()
    executor.execute_model(make_plan([new_request([5, 6, 7])], counts={"a": 3}))
    assert executor.sample_tokens().sampled_token_ids == [[first]]
    executor.execute_model(make_plan(preempted=["a"]))
    assert executor.sample_tokens().req_ids == []
    assert executor.num_known_requests == 0
    again = new_request([5, 6, 7, first], prompt=3, prompt_logprobs=1)
    executor.execute_model(make_plan([again], counts={"a": 4}))
    output = executor.sample_tokens()
    assert output.sampled_token_ids == [[fake_next_token(first, 4)]]
    assert not output.prompt_logprobs


def test_logprobs_have_the_documented_shapes() -> None:
    executor = make_executor()
    executor.execute_model(
        make_plan([new_request([5, 6, 7], logprobs=2, prompt_logprobs=0)], counts={"a": 3})
    )
    output = executor.sample_tokens()
    assert output.logprobs["a"].token_ids.shape == (1, 3)
    assert output.logprobs["a"].token_ids.tolist()[0][0] == output.sampled_token_ids[0][0]
    assert output.prompt_logprobs["a"].token_ids.tolist() == [[6], [7]]
    assert output.prompt_logprobs["a"].ranks.tolist() == [1, 1]


def test_wrong_plans_are_noticed() -> None:
    executor = make_executor()
    with pytest.raises(AssertionError, match="of 3 tokens"):
        executor.execute_model(make_plan([new_request([5, 6, 7])], counts={"a": 4}))
    executor = make_executor()
    executor.execute_model(make_plan([new_request([5, 6, 7])], counts={"a": 3}))
    with pytest.raises(AssertionError, match="before sample_tokens"):
        executor.execute_model(make_plan())
    executor.sample_tokens()
    with pytest.raises(AssertionError, match="the runner has 3"):
        executor.execute_model(
            make_plan(cached=CachedRequestData(["a"], [[]], [4]), counts={"a": 1})
        )
    with pytest.raises(AssertionError, match="without execute_model"):
        executor.sample_tokens()


def test_fake_executor_loads_no_torch() -> None:
    code = "import sys, kernelserve.executor.fake; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
