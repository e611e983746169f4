"""EngineCore over the fake executor, in this process, with a clock of the test's own."""

from __future__ import annotations

import inspect
from collections import deque

import pytest

from kernelserve.config import EngineConfig
from kernelserve.core.request import Request
from kernelserve.core.scheduler_output import ModelRunnerOutput
from kernelserve.engine.client_table import ClientTable
from kernelserve.engine.engine_core import EngineCore
from kernelserve.engine.engine_loader import load_engine
from kernelserve.engine.utilities import EngineUtilities
from kernelserve.protocol import FinishReason, UtilityRequest
from kernelserve.sampling_params import SamplingParams


class Clock:
    """Every reading is one second later."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def make_core(**config) -> EngineCore:
    config = {"model": "fake", "num_gpu_blocks": 64, **config}
    return load_engine(
        EngineConfig(**config),
        fake_model=True,
        progress=lambda *_: None,
        clock=Clock(),
        eager_aborts=deque(),
    )


def make_request(request_id: str, *, client_index: int = 0, num_prompt=5, max_tokens=4) -> Request:
    params = SamplingParams(temperature=0, max_tokens=max_tokens, detokenize=False)
    prompt = list(range(10, 10 + num_prompt))
    return Request(request_id, prompt, params, block_size=16, client_index=client_index)


def run(core: EngineCore) -> dict[str, list[int]]:
    tokens: dict[str, list[int]] = {}
    for _ in range(200):
        if not core.scheduler.has_requests():
            break
        for outputs in core.step().values():
            for output in outputs:
                tokens.setdefault(output.request_id, []).extend(output.new_token_ids)
    assert_at_rest(core)
    return tokens


def assert_at_rest(core: EngineCore) -> None:
    core.scheduler.check_integrity()
    stats = core.scheduler.stats()
    assert not core.scheduler.has_requests()
    assert (stats.num_running_reqs, stats.num_waiting_reqs, stats.num_used_blocks) == (0, 0, 0)
    assert core.executor.num_known_requests == 0  # type: ignore[attr-defined]


def test_step_is_three_calls_in_under_15_lines():
    lines = inspect.getsource(EngineCore.step).splitlines()
    assert len(lines) < 15


def test_a_step_record_gets_the_times_of_its_parts():
    core = make_core()
    core.add_request(make_request("a"))
    core.step()
    record = core.last_record
    assert record is core.scheduler.step_records[-1]
    times = (record.schedule_time, record.execute_time, record.sample_time, record.update_time)
    assert times == (1.0, 1.0, 1.0, 1.0)


def test_a_step_without_tokens_leaves_the_last_record_alone():
    core = make_core()
    core.add_request(make_request("a"))
    core.step()
    before = len(core.scheduler.step_records)
    core.abort(["a"])
    assert core.step() == {}
    assert core.last_record is None
    assert len(core.scheduler.step_records) == before
    assert_at_rest(core)


def test_outputs_go_to_the_client_that_asked():
    core = make_core()
    core.add_request(make_request("a", client_index=3))
    core.add_request(make_request("b", client_index=7))
    outputs = core.step()
    assert {index: [o.request_id for o in group] for index, group in outputs.items()} == {
        3: ["a"],
        7: ["b"],
    }
    core.abort_client(3)
    assert set(run(core)) == {"b"}


def test_trap_21a_abort_before_its_add():
    core = make_core()
    core.abort(["a"])
    core.add_request(make_request("a"))
    # The ordered queue delivers ADD before ABORT, so only an eager abort can be early.
    core.abort(["a"])
    assert run(core) == {}


def test_trap_21b_abort_while_the_step_is_in_flight():
    core = make_core()
    alone = run(_with_requests(core, "b"))["b"]
    core.add_request(make_request("a"))
    core.add_request(make_request("b"))
    core.step()
    eager = core._eager_aborts
    sample_tokens = core.executor.sample_tokens

    def abort_meanwhile() -> ModelRunnerOutput:
        eager.append(["a"])
        return sample_tokens()

    core.executor.sample_tokens = abort_meanwhile  # type: ignore[method-assign]
    outputs = core.step()
    assert [o.request_id for o in outputs[0]] == ["b"]
    assert not eager
    core.executor.sample_tokens = sample_tokens  # type: ignore[method-assign]
    core.abort(["a"])  # the ordered copy
    tokens = run(core)
    assert "a" not in tokens
    assert tokens["b"] == alone[2:]


def test_trap_21c_abort_after_finish():
    core = make_core()
    core.add_request(make_request("a"))
    assert len(run(core)["a"]) == 4
    assert core.abort(["a"]) == []
    assert_at_rest(core)


def test_trap_21d_an_output_after_a_local_abort_is_only_what_was_under_way():
    core = make_core()
    core.add_request(make_request("a"))
    core.step()
    assert core.abort(["a", "a", "unknown"]) == [("a", 0)]
    assert core.abort(["a"]) == []
    assert run(core) == {}


def test_t46_abort_at_each_point_of_a_step_harms_nobody():
    core = make_core()
    alone = run(_with_requests(core, "b"))["b"]
    calls = ("schedule", "execute_model", "sample_tokens", "update_from_output")
    for round_number, name in enumerate(calls):
        core.add_request(make_request(f"victim{round_number}", max_tokens=20))
        core.add_request(make_request(f"b{round_number}"))
        core.step()
        owner = core.executor if hasattr(core.executor, name) else core.scheduler
        original = getattr(owner, name)

        def abort_first(*args, original=original, victim=f"victim{round_number}"):
            core.abort([victim])
            return original(*args)

        setattr(owner, name, abort_first)
        core.step()
        setattr(owner, name, original)
        tokens = run(core)
        assert f"victim{round_number}" not in tokens
        assert tokens[f"b{round_number}"] == alone[2:]


def test_trap_24_a_client_abort_gets_no_reply_but_a_shutdown_does():
    core = make_core()
    core.add_request(make_request("a"))
    core.add_request(make_request("b", client_index=1))
    core.step()
    outputs = core.abort_all()
    assert [(i, o.request_id, o.finish_reason) for i, (o,) in outputs.items()] == [
        (0, "a", FinishReason.ABORT),
        (1, "b", FinishReason.ABORT),
    ]
    run(core)


def test_trap_9_a_second_request_with_a_live_id_is_refused_alone():
    core = make_core()
    core.add_request(make_request("a"))
    refused = core.add_request(make_request("a", client_index=1))
    assert refused is not None
    assert refused.finish_reason is FinishReason.ERROR
    assert "already running" in str(refused.stop_reason)
    assert len(run(core)["a"]) == 4


def test_trap_28_a_request_that_can_never_run_ends_with_error_and_no_other_is_harmed():
    core = make_core()
    core.add_request(make_request("good"))
    refused = core.add_request(make_request("huge", num_prompt=5000))
    assert refused is not None
    assert refused.finish_reason is FinishReason.ERROR
    assert "5000" in str(refused.stop_reason)
    assert list(run(core)) == ["good"]


def test_utilities_answer_and_fail_alone():
    core = make_core()
    utilities = EngineUtilities(core, ClientTable())
    core.add_request(make_request("a"))
    core.step()
    ping = utilities.call(UtilityRequest(1, "ping"))
    assert (ping.call_id, ping.failure, ping.result["requests"]) == (1, None, 1)
    assert utilities.call(UtilityRequest(2, "reset_prefix_cache")).result is False
    assert utilities.call(UtilityRequest(3, "reset_prefix_cache", [True])).result is True
    assert utilities.call(UtilityRequest(4, "configure", [{"max_num_seqs": 2}])).failure is None
    for call in (
        UtilityRequest(5, "__class__"),
        UtilityRequest(6, "configure", [{"max_num_seqs": 0}]),
        UtilityRequest(7, "configure", [{"no_such": 1}]),
        UtilityRequest(8, "step_records", ["x", "y"]),
    ):
        reply = utilities.call(call)
        assert reply.call_id == call.call_id
        assert reply.failure
    run(core)
    records = utilities.call(UtilityRequest(9, "step_records", [2])).result
    assert records[0].step == 2


def test_an_exception_in_a_step_comes_out(monkeypatch: pytest.MonkeyPatch):
    core = make_core()
    core.add_request(make_request("a"))

    def explode() -> ModelRunnerOutput:
        raise RuntimeError("boom")

    monkeypatch.setattr(core.executor, "sample_tokens", explode)
    with pytest.raises(RuntimeError, match="boom"):
        core.step()


def _with_requests(core: EngineCore, *ids: str) -> EngineCore:
    for request_id in ids:
        core.add_request(make_request(request_id))
    return core
