"""Prompts take what answers can spare, once it is known what a token costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelserve.core.prefill_pacer import PrefillPacer
from kernelserve.core.scheduler_output import SchedulerOutput
from tests.helpers.scheduling import Engine, solo_output

ANSWERS_S, TOKEN_S = 0.05, 0.002
"""What a step of answers costs here, and each prompt token besides."""


def timed_step(engine: Engine) -> tuple[SchedulerOutput, float]:
    """One step, and the seconds that the scheduler is told it took."""
    plan = engine.step()
    record = engine.scheduler.last_record
    assert record is not None
    seconds = TOKEN_S * record.num_prefill_tokens
    seconds += ANSWERS_S if record.num_decode_tokens else 0.0
    record.execute_time = seconds
    engine.scheduler.observe_times(record)
    return plan, seconds


def make_engine(stretch: float) -> Engine:
    return Engine(
        num_blocks=400, max_num_batched_tokens=256, max_model_len=1000, max_step_stretch=stretch
    )


def start_answers(engine: Engine) -> None:
    """Three answers that have been going on for a while."""
    for i in range(3):
        engine.submit(f"answer-{i}", [i + 1] * 40, max_tokens=60)
    for _ in range(10):
        timed_step(engine)


@pytest.mark.parametrize("stretch", [2.0, 3.0])
def test_a_long_prompt_holds_no_answer_up(stretch: float) -> None:
    engine = make_engine(stretch)
    start_answers(engine)
    prompt = [7] * 400
    engine.submit("long", prompt, max_tokens=4)
    parts, times = [], []
    while not engine.received["long"].token_ids:
        plan, seconds = timed_step(engine)
        parts.append(plan.num_scheduled_tokens["long"])
        times.append(seconds)
        assert len(plan.num_scheduled_tokens) == 4, "every answer goes on"
    assert max(times) <= stretch * ANSWERS_S + 1e-9
    assert parts[0] == int((stretch - 1) * ANSWERS_S / TOKEN_S)
    engine.run()
    assert engine.received["long"].token_ids == solo_output(prompt, 4)


def test_two_prompts_share_what_can_be_spared() -> None:
    engine = make_engine(2.0)
    start_answers(engine)
    engine.submit("first", [8] * 60, max_tokens=2)
    engine.submit("second", [9] * 60, max_tokens=2)
    first, second = timed_step(engine)[0], timed_step(engine)[0]
    assert [first.num_scheduled_tokens.get(name) for name in ("first", "second")] == [25, None]
    assert engine.scheduler.step_records[-2].refusals[0].reason == "budget"
    assert second.num_scheduled_tokens["first"] == 25
    third = timed_step(engine)[0]
    assert [third.num_scheduled_tokens[name] for name in ("first", "second")] == [10, 15]
    engine.run()


def test_without_answers_a_prompt_takes_the_budget() -> None:
    engine = make_engine(2.0)
    start_answers(engine)
    engine.run()
    engine.submit("long", [7] * 400, max_tokens=1)
    assert timed_step(engine)[0].total_num_scheduled_tokens == 256


@pytest.mark.parametrize("stretch", [0.0, 1000.0])
def test_no_limit_but_the_budget(stretch: float) -> None:
    engine = make_engine(stretch)
    start_answers(engine)
    engine.submit("long", [7] * 400, max_tokens=1)
    assert timed_step(engine)[0].total_num_scheduled_tokens == 256


def test_nothing_is_known_before_both_kinds_of_step_were_seen() -> None:
    pacer = PrefillPacer(3.0)
    assert pacer.allowance() is None
    pacer.observe(0, 5, 0.05)
    assert pacer.allowance() is None
    pacer.observe(8, 5, 0.2)  # too few prompt tokens to learn from
    assert pacer.allowance() is None
    pacer.observe(100, 5, 0.25)
    assert pacer.allowance() == 50


@given(
    st.floats(1.01, 10),
    st.lists(
        st.tuples(st.integers(0, 2048), st.integers(0, 64), st.floats(0, 60, allow_nan=False))
    ),
)
def test_a_prompt_always_goes_on(stretch: float, steps: list[tuple[int, int, float]]) -> None:
    pacer = PrefillPacer(stretch)
    for step in steps:
        pacer.observe(*step)
        allowance = pacer.allowance()
        assert allowance is None or allowance >= 16
