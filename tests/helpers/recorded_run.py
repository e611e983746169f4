"""A run of the real scheduler with its step records and, beside each, the truth after its step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from kernelserve.core.request import Request, RequestStatus
from kernelserve.protocol import SchedulerStats, StepRecord
from tests.helpers.scheduling import Engine


@dataclass(frozen=True)
class Fact:
    """Where one request stood when a step was over."""

    status: RequestStatus
    num_computed_tokens: int
    num_generated_tokens: int
    num_preemptions: int


@dataclass
class Moment:
    """A record, and the unfinished requests when its step was over."""

    record: StepRecord
    live: dict[str, Fact]
    decoding: set[str]
    """Of those that got tokens in the step: the ones that had sampled since their admission."""


@dataclass
class RecordedRun:
    """Drives an engine by a list of actions and watches it from outside."""

    engine: Engine
    moments: list[Moment] = field(default_factory=list)
    requests: dict[str, Request] = field(default_factory=dict)
    aborted: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    _sampled: set[str] = field(default_factory=set)

    @property
    def records(self) -> list[StepRecord]:
        return [moment.record for moment in self.moments]

    @property
    def stats(self) -> SchedulerStats:
        return self.engine.scheduler.stats()

    def submit(self, length: int, max_tokens: int, prefix: int = 0) -> None:
        request_id = f"r{len(self.requests)}"
        prompt = [*range(prefix), *([len(self.requests) % 7] * length)]
        request = self.engine.request(request_id, prompt)
        if self.engine.scheduler.why_impossible(request) is None:
            self.requests[request_id] = self.engine.submit(
                request_id, prompt, max_tokens=max_tokens
            )

    def abort(self, number: int) -> None:
        live = list(self.engine.scheduler.requests)
        if live:
            request_id = live[number % len(live)]
            self.engine.abort(request_id)
            self.aborted.add(request_id)

    def step(self, *, abort: int | None = None, fail: int | None = None) -> None:
        """Make a step; `abort` ends a request while it runs, `fail` is a request that fails in it."""
        plan = self.engine.schedule()
        self._sampled -= {new.req_id for new in plan.scheduled_new_reqs}
        decoding = {i for i in plan.num_scheduled_tokens if i in self._sampled}
        before = {i: self.requests[i].num_output_tokens for i in plan.num_scheduled_tokens}
        if abort is not None:
            self.abort(abort)
        if fail is not None and plan.num_scheduled_tokens:
            victim = list(plan.num_scheduled_tokens)[fail % len(plan.num_scheduled_tokens)]
            if victim in self.engine.scheduler.requests:
                self.engine.runner.errors = {victim: "NaN"}
                self.failed.add(victim)
        self.engine.execute_and_update(plan)
        self._sampled |= {i for i, n in before.items() if self.requests[i].num_output_tokens > n}
        if (record := self.engine.scheduler.last_record) is not None:
            facts = {i: _fact(request) for i, request in self.engine.scheduler.requests.items()}
            self.moments.append(Moment(record, facts, decoding))

    def finish(self) -> None:
        while self.engine.scheduler.has_requests():
            self.step()


def _fact(request: Request) -> Fact:
    return Fact(
        request.status,
        request.num_computed_tokens,
        request.num_output_tokens,
        request.num_preemptions,
    )


_SUBMIT = st.tuples(
    st.just("submit"), st.integers(1, 12), st.integers(6, 24), st.sampled_from([0, 4, 8])
)
_STEPS = st.tuples(st.just("steps"), st.integers(1, 6))
_ACTIONS: st.SearchStrategy[tuple[Any, ...]] = st.one_of(
    _SUBMIT,
    _SUBMIT,
    _STEPS,
    _STEPS,
    st.tuples(st.just("abort"), st.integers(0, 9)),
    st.tuples(st.just("abort in step"), st.integers(0, 9)),
    st.tuples(st.just("fail"), st.integers(0, 9)),
    st.tuples(st.just("reset"), st.booleans()),
)


@dataclass(frozen=True)
class RunPlan:
    """What an engine is given and what is done with it."""

    options: dict[str, Any]
    actions: list[tuple[Any, ...]]

    def perform(self) -> RecordedRun:
        """Do it all, then step until nothing is left."""
        run = RecordedRun(Engine(max_model_len=60, **self.options))
        for action, *arguments in self.actions:
            _perform(run, action, *arguments)
        run.finish()
        return run


def _perform(run: RecordedRun, action: str, *arguments: Any) -> None:
    if action == "submit":
        run.submit(*arguments)
    elif action == "steps":
        for _ in range(arguments[0]):
            run.step()
    elif action == "abort":
        run.abort(*arguments)
    elif action == "abort in step":
        run.step(abort=arguments[0])
    elif action == "fail":
        run.step(fail=arguments[0])
    else:
        run.engine.scheduler.reset_prefix_cache(reset_running_requests=arguments[0])


@st.composite
def run_plans(draw: st.DrawFn) -> RunPlan:
    """Arrivals, aborts, failures, preemptions and resets in a small engine."""
    num_seqs = draw(st.sampled_from([3, 4, 2, 5, 1]))
    options: dict[str, Any] = {
        "num_blocks": draw(st.integers(6, 16)),
        "block_size": draw(st.sampled_from([4, 2, 3, 1])),
        "max_num_seqs": num_seqs,
        "max_num_batched_tokens": num_seqs + draw(st.integers(0, 10)),
        "long_prefill_token_threshold": draw(st.sampled_from([0, 0, 3])),
    }
    first = draw(st.lists(_SUBMIT, min_size=3, max_size=5))
    return RunPlan(options, [*first, *draw(st.lists(_ACTIONS, min_size=5, max_size=25))])
