from __future__ import annotations

from array import array

from kernelserve.core.scheduler_output import ModelRunnerOutput
from kernelserve.core.step_updater import first_rows
from kernelserve.protocol import FinishReason, LogprobsLists, PrefillStats
from kernelserve.wire import WireArray
from tests.helpers.scheduling import Engine, solo_output


def make_logprobs(num_rows: int) -> LogprobsLists:
    ids, ranks = array("i", range(num_rows * 2)), array("i", range(num_rows))
    values = array("f", range(num_rows * 2))
    return LogprobsLists(
        WireArray("int32", (num_rows, 2), memoryview(ids)),
        WireArray("float32", (num_rows, 2), memoryview(values)),
        WireArray("int32", (num_rows,), memoryview(ranks)),
    )


def test_outputs_go_to_the_client_that_asked() -> None:
    engine = Engine()
    for req_id, client in (("a", 0), ("b", 7), ("c", 0)):
        engine.submit(req_id, [1, 2], client_index=client, max_tokens=1)
    plan = engine.schedule()
    # The runner's order is its own; outputs come in the order of the plan.
    output = ModelRunnerOutput(["c", "a", "b"], [[30], [10], [20]])
    outputs = engine.scheduler.update_from_output(plan, output, 5.0)
    told = {client: [(o.request_id, o.new_token_ids) for o in of] for client, of in outputs.items()}
    assert told == {0: [("a", [10]), ("c", [30])], 7: [("b", [20])]}


def test_tokens_behind_a_stop_are_dropped_with_their_logprobs() -> None:
    engine = Engine()
    engine.submit("a", [1, 2], max_tokens=10, stop_token_ids=[6])
    plan = engine.schedule()
    output = ModelRunnerOutput(["a"], [[5, 6, 7]], logprobs={"a": make_logprobs(3)})
    (core_output,) = engine.scheduler.update_from_output(plan, output, 5.0)[0]
    assert core_output.new_token_ids == [5, 6]
    assert (core_output.finish_reason, core_output.stop_reason) == (FinishReason.STOP, 6)
    assert core_output.new_logprobs is not None
    assert core_output.new_logprobs.token_ids.tolist() == [[0, 1], [2, 3]]
    assert core_output.new_logprobs.logprobs.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert core_output.new_logprobs.ranks.tolist() == [0, 1]
    engine.scheduler.check_integrity()


def test_no_tokens_have_no_logprobs() -> None:
    none = first_rows(make_logprobs(2), 0)
    assert none.token_ids.tolist() == none.ranks.tolist() == []


def test_t07_an_end_token_before_the_limit_wins_in_a_step_of_several_tokens() -> None:
    engine = Engine()
    engine.submit("a", [1, 2], max_tokens=10, eos_token_id=9)
    output = ModelRunnerOutput(["a"], [[1] * 8])
    engine.scheduler.update_from_output(engine.schedule(), output, 5.0)
    output = ModelRunnerOutput(["a"], [[9, 1, 1]])
    request = engine.scheduler.requests["a"]
    request.num_computed_tokens = request.num_tokens - 1
    (core_output,) = engine.scheduler.update_from_output(engine.schedule(), output, 6.0)[0]
    assert core_output.new_token_ids == [9]
    assert core_output.finish_reason is FinishReason.STOP


def test_the_first_output_brings_prefill_stats_and_prompt_logprobs() -> None:
    engine = Engine(max_num_batched_tokens=8)
    engine.submit("a", list(range(12)), max_tokens=3)
    plan = engine.schedule()
    assert engine.scheduler.update_from_output(plan, ModelRunnerOutput(["a"], [[]]), 1.0) == {}
    prompt_logprobs = {"a": make_logprobs(11)}
    output = ModelRunnerOutput(["a"], [[5]], prompt_logprobs=prompt_logprobs)
    (first,) = engine.scheduler.update_from_output(engine.schedule(), output, 2.0)[0]
    assert first.prefill_stats == PrefillStats(12, 0)
    assert first.new_prompt_logprobs is prompt_logprobs["a"]
    output = ModelRunnerOutput(["a"], [[5]])
    (second,) = engine.scheduler.update_from_output(engine.schedule(), output, 3.0)[0]
    assert second.prefill_stats is None
    assert second.new_prompt_logprobs is None
    assert second.events == []


def test_an_error_ends_one_request_and_no_other() -> None:
    engine = Engine()
    engine.submit("a", [1, 2])
    engine.submit("b", [3, 4])
    plan = engine.schedule()
    output = ModelRunnerOutput(["b"], [[5]], errors={"a": "NaN logits"})
    bad, good = engine.scheduler.update_from_output(plan, output, 1.0)[0]
    assert (bad.request_id, bad.new_token_ids) == ("a", [])
    assert (bad.finish_reason, bad.stop_reason) == (FinishReason.ERROR, "NaN logits")
    assert (good.request_id, good.new_token_ids, good.finish_reason) == ("b", [5], None)
    engine.scheduler.check_integrity()
    assert set(engine.scheduler.requests) == {"b"}


def test_an_error_in_flight_does_not_end_who_has_the_id_by_then() -> None:
    engine = Engine()
    engine.submit("a", [1, 2])
    engine.submit("b", [3, 4])
    plan = engine.schedule()
    engine.abort("a")
    engine.submit("a", [7, 8, 9])
    engine.scheduler.reset_prefix_cache(reset_running_requests=True)
    output = ModelRunnerOutput(["a", "b"], [[], []], errors={"a": "boom", "b": "boom"})
    assert engine.scheduler.update_from_output(plan, output, 1.0) == {}
    engine.run()
    assert engine.received["a"].token_ids == solo_output([7, 8, 9], 4)
    assert engine.received["b"].token_ids == solo_output([3, 4], 4)


def test_an_error_in_the_middle_of_a_prompt_ends_the_request() -> None:
    engine = Engine(max_num_batched_tokens=8)
    engine.submit("a", list(range(20)))
    output = ModelRunnerOutput(["a"], [[]], errors={"a": "boom"})
    (core_output,) = engine.scheduler.update_from_output(engine.schedule(), output, 1.0)[0]
    assert core_output.stop_reason == "boom"
    assert not engine.scheduler.has_unfinished_requests()
