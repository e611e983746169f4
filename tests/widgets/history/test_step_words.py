"""A step in words: every kind of decision, singular and plural, with and without a known life."""

from __future__ import annotations

import pytest

from kernelserve.protocol import QueuedRequest, Refusal, StepRecord
from kernelserve_widgets.history import StepHistory, describe_step, reason_in_words
from tests.helpers.scheduling import Engine
from tests.helpers.step_records import make_record


def make_history(*, prompts: dict[str, int], before: StepRecord | None = None) -> StepHistory:
    """A history at step 411 in which these requests have joined; `before` is its last record."""
    history = StepHistory()
    queued = [QueuedRequest(i, 40.0, n) for i, n in prompts.items()]
    record = before or make_record(411, num_waiting_reqs=len(prompts))
    record.queued = queued
    history.add([record])
    return history


def describe(history: StepHistory, record: StepRecord) -> str:
    history.add([record])
    return describe_step(record, history)


def test_the_example_of_the_manual() -> None:
    decoding = ["r2", "r4", "r5", "r6"]
    before = make_record(411, dict.fromkeys([*decoding, "r3"], 4), new_req_ids=[*decoding, "r3"])
    history = make_history(
        prompts=dict.fromkeys([*decoding, "r3"], 4) | {"r7": 1024, "r9": 180}, before=before
    )
    record = make_record(
        412,
        {"r7": 384} | dict.fromkeys(decoding, 1),
        token_budget=512,
        num_decode_tokens=4,
        new_req_ids=["r7"],
        num_cached_tokens={"r7": 0},
        refusals=[Refusal("r9", "blocks", 12, 5)],
        preempted_req_ids=["r3"],
        num_waiting_reqs=2,
    )
    assert describe(history, record) == (
        "step 412: budget 512; r7 got 384 of 1,024 prompt tokens; r2 and 3 more decoded; "
        "r9 waits: needs 12 blocks, 5 free; r3 was preempted"
    )


def test_a_prefix_hit_is_told() -> None:
    history = make_history(prompts={"r7": 1024})
    record = make_record(
        412, {"r7": 384}, new_req_ids=["r7"], num_cached_tokens={"r7": 256}, token_budget=2048
    )
    assert describe(history, record) == (
        "step 412: budget 2,048; r7 got 384 of 1,024 prompt tokens, 256 from the cache"
    )


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, "r0 decoded"),
        (2, "r0 and r1 decoded"),
        (3, "r0 and 2 more decoded"),
        (1001, "r0 and 1,000 more decoded"),
    ],
)
def test_decodes_are_counted(number: int, words: str) -> None:
    ids = [f"r{i}" for i in range(number)]
    before = make_record(411, dict.fromkeys(ids, 4), new_req_ids=ids)
    history = make_history(prompts=dict.fromkeys(ids, 4), before=before)
    record = make_record(412, dict.fromkeys(ids, 1), num_decode_tokens=number)
    assert describe(history, record) == f"step 412: budget 64; {words}"


def test_a_prompt_of_one_token_and_many_prompts() -> None:
    ids = [f"r{i}" for i in range(6)]
    history = make_history(prompts=dict.fromkeys(ids, 500) | {"r0": 1})
    granted = dict.fromkeys(ids, 500) | {"r0": 1}
    record = make_record(412, granted, new_req_ids=ids, num_cached_tokens=dict.fromkeys(ids, 0))
    assert describe(history, record) == (
        "step 412: budget 64; r0 got 1 of 1 prompt token; r1 got 500 of 500 prompt tokens; "
        "r2 got 500 of 500 prompt tokens; 3 more got 1,500 prompt tokens"
    )


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (Refusal("r9", "blocks", 12, 5), "needs 12 blocks, 5 free"),
        (Refusal("r9", "blocks", 1, 0), "needs 1 block, 0 free"),
        (Refusal("r9", "blocks", 1200, 1024), "needs 1,200 blocks, 1,024 free"),
        (Refusal("r9", "budget"), "no budget left"),
        (Refusal("r9", "max_num_seqs", 9, 8), "all 8 seats are taken"),
        (Refusal("r9", "max_num_seqs", 2, 1), "the only seat is taken"),
        (Refusal("r9", "preempted_step"), "nobody new is admitted in a step that preempts"),
    ],
)
def test_each_reason_to_wait(refusal: Refusal, words: str) -> None:
    assert reason_in_words(refusal) == words
    history = make_history(prompts={"r9": 8})
    record = make_record(412, refusals=[refusal], num_waiting_reqs=1)
    assert describe(history, record) == f"step 412: budget 64; r9 waits: {words}"


@pytest.mark.parametrize(
    ("behind", "words"),
    [
        (1, "1 more waits behind it"),
        (2, "2 more wait behind it"),
        (5000, "5,000 more wait behind it"),
    ],
)
def test_those_behind_the_first_are_counted(behind: int, words: str) -> None:
    history = make_history(prompts={"r9": 8})
    refusals = [Refusal("r9", "budget")]
    record = make_record(412, refusals=refusals, num_waiting_reqs=1 + behind)
    assert describe(history, record) == (f"step 412: budget 64; r9 waits: no budget left; {words}")


def test_running_requests_without_tokens_do_not_wait() -> None:
    engine = Engine(max_num_seqs=4)
    for req_id in ("a", "b", "c", "d"):
        engine.submit(req_id, [1, 2], max_tokens=5)
    engine.step()
    engine.scheduler.configure(max_num_seqs=1, max_num_batched_tokens=1)
    engine.submit("e", [1], max_tokens=5)
    engine.step()
    history = StepHistory()
    history.add(engine.scheduler.step_records)
    assert describe_step(history.records[-1], history) == (
        "step 1: budget 1; a decoded; b and 2 more got nothing: no budget left; e waits: no budget left"
    )


def test_preemption_and_return() -> None:
    engine = Engine(num_blocks=7, max_num_batched_tokens=9)
    engine.submit("a", list(range(8)), max_tokens=12)
    engine.submit("b", list(range(20, 28)), max_tokens=12)
    engine.run()
    history = StepHistory()
    history.add(engine.scheduler.step_records)
    lines = [describe_step(record, history) for record in history.records]
    preempted = next(line for line in lines if "b was preempted" in line)
    assert preempted == "step 5: budget 9; a decoded; b was preempted"
    resumed = next(line for line in lines if "b resumed" in line)
    assert "b resumed with" in resumed
    assert "to compute again" in resumed
    assert lines[-1].endswith("decoded; b finished")


def test_one_that_gives_way_for_its_own_need_is_told_with_it() -> None:
    before = make_record(411, {"r1": 8, "r2": 8}, new_req_ids=["r1", "r2"])
    history = make_history(prompts={"r1": 8, "r2": 8, "r3": 8}, before=before)
    record = make_record(
        412,
        {"r1": 1},
        num_decode_tokens=1,
        refusals=[Refusal("r2", "blocks", 2, 0), Refusal("r2", "preempted_step")],
        preempted_req_ids=["r2"],
        num_waiting_reqs=2,
    )
    assert describe(history, record) == (
        "step 412: budget 64; r1 decoded; r2 was preempted: needs 2 blocks, 0 free"
    )


def test_the_rest_of_a_resumed_request_is_computed_again() -> None:
    before = make_record(411, {"r1": 8}, new_req_ids=["r1"])
    history = make_history(prompts={"r1": 8}, before=before)
    history.add([make_record(412, preempted_req_ids=["r1"], num_waiting_reqs=1)])
    first = make_record(
        413, {"r1": 1}, resumed_req_ids=["r1"], num_cached_tokens={"r1": 4}, num_waiting_reqs=0
    )
    assert describe(history, first) == (
        "step 413: budget 64; r1 resumed with 1 token to compute again, 4 from the cache"
    )
    rest = make_record(414, {"r1": 4})
    assert describe(history, rest) == "step 414: budget 64; r1 computed 4 tokens again"


def test_ends_are_told() -> None:
    ids = ["r1", "r2", "r3"]
    before = make_record(411, dict.fromkeys(ids, 4), new_req_ids=ids)
    history = make_history(prompts=dict.fromkeys(ids, 4), before=before)
    record = make_record(
        412,
        {"r1": 1, "r2": 1},
        num_decode_tokens=2,
        finished_req_ids=["r1", "r2"],
        aborted_req_ids=["r3"],
    )
    assert describe(history, record) == (
        "step 412: budget 64; r1 and r2 decoded; r1 and r2 finished; r3 was aborted before it"
    )


def test_a_record_of_unknown_requests_is_told_by_its_numbers() -> None:
    history = StepHistory()
    record = make_record(9, {"r1": 40, "r2": 1}, num_decode_tokens=1)
    assert (
        describe_step(record, history) == "step 9: budget 64; r1 got 40 prompt tokens; r2 decoded"
    )


def test_an_old_step_is_told_as_it_was() -> None:
    engine = Engine(max_num_batched_tokens=16)
    engine.submit("a", list(range(40)), max_tokens=5)
    engine.run()
    history = StepHistory()
    history.add(engine.scheduler.step_records)
    lines = [describe_step(record, history) for record in history.records]
    assert lines[0] == "step 0: budget 16; a got 16 of 40 prompt tokens"
    assert lines[2] == "step 2: budget 16; a got 8 of 40 prompt tokens"
    assert lines[3] == "step 3: budget 16; a decoded"


def test_long_ids_have_short_names() -> None:
    history = StepHistory()
    internal = "63b1a4c2f00d4e11-0123abcd"
    record = make_record(3, {internal: 1}, num_decode_tokens=1)
    assert describe(history, record) == "step 3: budget 64; q1 decoded"
