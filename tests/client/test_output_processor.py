"""The way of the engine's outputs to the callers: complete, in order, with one finish."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelserve.client.mailbox import Mailbox
from kernelserve.errors import EngineDeadError, EngineRequestError
from kernelserve.outputs import RequestOutput
from kernelserve.protocol import (
    EngineCoreEvent,
    EngineCoreEventType,
    FinishReason,
    PrefillStats,
)
from kernelserve.sampling_params import RequestOutputKind
from tests.helpers.client_side import Client, Sink, logprobs_lists, tokens
from tests.helpers.tokenizers import TEXT, byte_fallback, byte_level

STOP, LENGTH, ABORT, ERROR = FinishReason
DELTA, CUMULATIVE, FINAL = (
    RequestOutputKind.DELTA,
    RequestOutputKind.CUMULATIVE,
    RequestOutputKind.FINAL_ONLY,
)
EOS = 2


@pytest.fixture
def client() -> Client:
    return Client(byte_level(), eos_token_ids=[EOS, 0])


def ids_of(text: str) -> list[int]:
    return byte_level().encode(text, add_special_tokens=False)


def only(processed):
    [request] = processed.requests
    return request.request_id


def test_t01_a_stop_string_ends_the_request_and_the_engine_is_told(client):
    processed, sink = client.add("a", stop=["DE"])
    internal = only(processed)
    assert client.step(tokens(internal, ids_of(" ABC"))) == []
    assert client.step(tokens(internal, [*ids_of(" DEF"), *ids_of("xyz")])) == [internal]
    answer = sink.joined()
    assert (answer.text, answer.finish_reason, answer.stop_reason) == (" ABC ", "stop", "DE")
    assert sink.last.finished
    assert not client.output.has_unfinished


def test_trap_23_tokens_behind_the_stop_string_are_dropped(client):
    processed, sink = client.add("a", stop=["DE"], logprobs=0)
    ids = [*ids_of(" ABC"), *ids_of(" DEF"), *ids_of("xyz")]
    rows = logprobs_lists([([i], [-1.0], 1) for i in ids])
    client.step(tokens(only(processed), ids, new_logprobs=rows))
    answer = sink.joined()
    assert answer.token_ids == ids[: len(ids_of(" ABC")) + 1]
    assert answer.logprobs is not None
    assert len(answer.logprobs) == len(answer.token_ids)
    assert answer.cumulative_logprob == -float(len(answer.token_ids))
    assert client.step(tokens(only(processed), [9], LENGTH)) == []
    assert len(sink.outputs) == 1


@pytest.mark.parametrize("include", [False, True])
def test_t05_a_stop_token_is_in_the_ids_but_not_in_the_text(client, include):
    [word] = ids_of(" of")
    processed, sink = client.add("a", stop_token_ids=[word], include_stop_str_in_output=include)
    client.step(tokens(only(processed), [*ids_of("x"), word], STOP, word))
    answer = sink.joined()
    assert answer.token_ids[-1] == word
    assert answer.text == ("x of" if include else "x")
    assert (answer.finish_reason, answer.stop_reason) == ("stop", word)


def test_trap_35_the_end_token_is_no_text_even_if_special_tokens_are_shown(client):
    processed, sink = client.add("a", skip_special_tokens=False)
    client.step(tokens(only(processed), [1, *ids_of("x"), EOS], STOP))
    assert sink.joined().text == "<|im_start|>x"
    assert sink.joined().token_ids[-1] == EOS


def test_t07_a_step_of_several_tokens_ends_at_the_end_token(client):
    processed, sink = client.add("a", max_tokens=10)
    internal = only(processed)
    client.step(tokens(internal, ids_of("abcdefgh")))
    client.step(tokens(internal, [EOS], STOP))
    client.step(tokens(internal, [8, 9], LENGTH))
    answer = sink.joined()
    assert (answer.finish_reason, answer.text) == ("stop", "abcdefgh")
    assert answer.token_ids == [*ids_of("abcdefgh"), EOS]


@pytest.mark.parametrize(
    ("reported", "expected"),
    [((EOS, None), None), ((0, 0), None), ((9, 9), 9)],
)
def test_t19_trap_34_the_end_of_the_model_has_no_stop_reason(client, reported, expected):
    token, reason = reported
    processed, sink = client.add("a", stop_token_ids=[9])
    client.step(tokens(only(processed), [token], STOP, reason))
    assert (sink.last.outputs[0].finish_reason, sink.last.outputs[0].stop_reason) == (
        "stop",
        expected,
    )


def test_t19_an_end_token_that_the_caller_named_is_reported(client):
    processed, sink = client.add("a", stop_token_ids=[0])
    client.step(tokens(only(processed), [0], STOP, 0))
    assert sink.last.outputs[0].stop_reason == 0


@pytest.mark.parametrize("kind", [byte_level, byte_fallback])
def test_t10_half_a_character_is_flushed_once_at_the_end(kind):
    client = Client(kind())
    processed, sink = client.add("a")
    ids = kind().encode("x🔥", add_special_tokens=False)[:-1]
    for i, token_id in enumerate(ids):
        client.step(tokens(only(processed), [token_id], LENGTH if i == len(ids) - 1 else None))
    assert not any("\ufffd" in output.text for output in sink.outputs[:-1])
    assert "\ufffd" in sink.last.text
    assert sink.joined().token_ids == ids


def split(ids, cuts):
    edges = [0, *sorted({c % (len(ids) + 1) for c in cuts}), len(ids)]
    return [ids[a:b] for a, b in pairwise(edges) if a < b]


def answer_in_parts(client, parts, **params):
    processed, sink = client.add("a", **params)
    for i, part in enumerate(parts):
        finish = LENGTH if i == len(parts) - 1 else None
        rows = logprobs_lists([([token_id], [-0.5], 1) for token_id in part])
        client.step(tokens(only(processed), part, finish, new_logprobs=rows))
    return sink


@settings(max_examples=100, deadline=None)
@given(
    ids=st.lists(st.integers(0, 458), min_size=1, max_size=30),
    cuts=st.lists(st.integers(0, 100), max_size=10),
    takes=st.lists(st.booleans(), min_size=31, max_size=31),
    stop=st.lists(st.text("ae o\n", min_size=1, max_size=3), max_size=2),
    fallback=st.booleans(),
)
def test_t12_any_split_any_speed_any_kind_gives_the_same_answer(ids, cuts, takes, stop, fallback):
    client = Client(byte_fallback() if fallback else byte_level())
    answers = []
    for kind, parts in ((FINAL, [ids]), (CUMULATIVE, split(ids, cuts)), (DELTA, split(ids, cuts))):
        sink = answer_in_parts(client, parts, output_kind=kind, stop=stop, logprobs=0)
        sink.outputs = merge_slowly(sink, takes, delta=kind is DELTA)
        assert [output.finished for output in sink.outputs].count(True) == 1
        answers.append(sink.joined() if kind is DELTA else sink.last.outputs[0])
        assert sink.last.metrics.num_generation_tokens == len(answers[-1].token_ids)
    assert answers[0] == answers[1] == answers[2]
    assert not client.output.has_unfinished


def merge_slowly(sink: Sink, takes: list[bool], *, delta: bool) -> list[RequestOutput]:
    """What a consumer gets that is asleep for some of the outputs."""
    mailbox = Mailbox(delta=delta)
    taken = []
    for i, output in enumerate(sink.outputs):
        mailbox.put(copy.deepcopy(output))
        if takes[i % len(takes)] or i == len(sink.outputs) - 1:
            taken.append(mailbox.get_blocking())
    return taken


def test_trap_29_a_slow_consumer_of_32_streams_loses_nothing():
    client = Client(byte_level())
    ids = ids_of(TEXT)[:90]
    mailboxes = [Mailbox(delta=True) for _ in range(32)]
    internal = []
    for i, mailbox in enumerate(mailboxes):
        processed, sink = client.add("a", f"{i}")
        sink.put = mailbox.put  # type: ignore[method-assign]
        internal.append(only(processed))
    joined: list[list[RequestOutput]] = [[] for _ in mailboxes]
    for step, token_id in enumerate(ids):
        finish = LENGTH if step == len(ids) - 1 else None
        client.step(*(tokens(i, [token_id], finish) for i in internal))
        for i, mailbox in enumerate(mailboxes):
            if finish or step % (i + 2) == 0:
                joined[i].append(mailbox.get_blocking())
    for outputs in joined:
        assert "".join(o.text for o in outputs) == byte_level().decode(ids)
        assert [t for o in outputs for t in o.outputs[0].token_ids] == ids
        assert [o.finished for o in outputs].count(True) == 1


def test_trap_22_outputs_of_unknown_requests_are_ignored(client):
    assert client.step(tokens("nobody", [7], STOP)) == []


def test_trap_24_an_abort_makes_one_last_output_here(client):
    processed, sink = client.add("a", stop=["xyz"])
    internal = only(processed)
    client.step(tokens(internal, ids_of("ab x")))
    assert sink.joined().text == "ab "
    assert client.output.abort_requests(["r"], client.now + 1) == [internal]
    answer = sink.joined()
    assert (answer.text, answer.finish_reason, answer.stop_reason) == ("ab x", "abort", None)
    assert sink.last.finished
    assert sink.last.outputs[0].token_ids == []
    assert sink.last.metrics.e2e_latency == 2.0


def test_t46_late_repeated_and_unknown_aborts_do_nothing(client):
    processed, sink = client.add("a")
    internal = only(processed)
    assert client.output.abort_requests(["r", "r", internal, "nobody"]) == [internal]
    assert client.step(tokens(internal, [7], STOP)) == []
    assert len(sink.outputs) == 1
    done, sink = client.add("a")
    client.step(tokens(only(done), [EOS], STOP))
    assert client.output.abort_requests(["r", done.internal_id]) == []
    assert [o.outputs[0].finish_reason for o in sink.outputs] == ["stop"]


def test_trap_9_namesakes_are_aborted_together_and_by_internal_id_apart(client):
    requests = [client.add("a", "same") for _ in range(3)]
    first = requests[0][0].internal_id
    assert client.output.abort_requests([first]) == [first]
    assert [len(sink.outputs) for _, sink in requests] == [1, 0, 0]
    assert len(client.output.abort_requests(["same"])) == 2
    assert not client.output.has_unfinished


def test_trap_42_an_empty_delta_has_no_logprobs(client):
    processed, sink = client.add("a", logprobs=0)
    rows = logprobs_lists([([7], [-1.0], 1)])
    client.step(tokens(only(processed), [7], new_logprobs=rows))
    client.output.abort_requests(["r"])
    assert sink.last.outputs[0].logprobs is None
    assert sink.joined().logprobs is not None
    assert len(sink.joined().logprobs or ()) == 1


def test_trap_31_an_output_does_not_change_later(client):
    processed, sink = client.add("a", output_kind=CUMULATIVE, logprobs=0, prompt_logprobs=0)
    kept = []
    for i in range(3):
        rows = logprobs_lists([([7], [-1.0], 1)])
        finish = LENGTH if i == 2 else None
        client.step(tokens(only(processed), [7], finish, new_logprobs=rows), timestamp=float(i))
        kept.append(copy.deepcopy(sink.last))
        sink.last.outputs[0].token_ids = list(sink.last.outputs[0].token_ids)
    assert sink.outputs == kept
    assert [len(o.outputs[0].token_ids) for o in kept] == [1, 2, 3]
    assert [len(o.outputs[0].logprobs or ()) for o in kept] == [1, 2, 3]


def test_a_sink_may_change_what_it_is_given(client):
    processed, sink = client.add("a", output_kind=CUMULATIVE)
    client.step(tokens(only(processed), [7]))
    sink.last.outputs[0].token_ids.clear()
    client.step(tokens(only(processed), [8], LENGTH))
    assert sink.last.outputs[0].token_ids == [7, 8]


@pytest.mark.parametrize("kind", [DELTA, CUMULATIVE])
def test_t25_streams_of_several_answers_stay_apart(client, kind):
    processed, sink = client.add("a", n=3, seed=1, temperature=1.0, output_kind=kind)
    a, b, c = (r.request_id for r in processed.requests)
    client.step(tokens(a, ids_of("ab")), tokens(b, ids_of("x")))
    client.step(tokens(b, [EOS], STOP), tokens(c, ids_of("cc"), LENGTH))
    assert not any(output.finished for output in sink.outputs)
    client.step(tokens(a, ids_of("cd"), LENGTH))
    assert [output.finished for output in sink.outputs].count(True) == 1
    assert sink.last.finished
    if kind is DELTA:
        answers = [sink.joined(i) for i in range(3)]
    else:
        answers = [
            [o.outputs[0] for o in sink.outputs if o.outputs[0].index == i][-1] for i in range(3)
        ]
    assert [answer.text for answer in answers] == ["abcd", "x", "cc"]
    assert [answer.finish_reason for answer in answers] == ["length", "stop", "length"]
    assert sink.last.metrics.num_generation_tokens == sum(len(x.token_ids) for x in answers)


def test_t25_one_final_output_has_all_answers_by_index(client):
    processed, sink = client.add("a", n=3, temperature=1.0, output_kind=FINAL)
    a, b, c = (r.request_id for r in processed.requests)
    client.step(tokens(c, ids_of("c"), LENGTH))
    client.step(tokens(a, ids_of("a"), LENGTH))
    assert not sink.outputs
    client.step(tokens(b, ids_of("b"), LENGTH))
    [output] = sink.outputs
    assert [(x.index, x.text) for x in output.outputs] == [(0, "a"), (1, "b"), (2, "c")]
    assert output.finished


@pytest.mark.parametrize("kind", [DELTA, CUMULATIVE, FINAL])
def test_t25_an_abort_ends_all_answers(client, kind):
    processed, sink = client.add("a", n=3, temperature=1.0, output_kind=kind)
    a, b, c = (r.request_id for r in processed.requests)
    client.step(tokens(a, ids_of("a")), tokens(b, ids_of("b"), LENGTH))
    assert sorted(client.output.abort_requests(["r"])) == [a, c]
    assert [output.finished for output in sink.outputs].count(True) == 1
    reasons = {x.index: x.finish_reason for o in sink.outputs for x in o.outputs}
    assert reasons == {0: "abort", 1: "length", 2: "abort"}
    assert not client.output.has_unfinished


def test_t25_one_answer_can_be_aborted_alone(client):
    processed, sink = client.add("a", n=2, temperature=1.0)
    a, b = (r.request_id for r in processed.requests)
    assert client.output.abort_requests([a]) == [a]
    assert not sink.last.finished
    client.step(tokens(b, [7], LENGTH))
    assert sink.last.finished


def test_an_error_of_one_answer_fails_its_request_and_no_other(client):
    processed, sink = client.add("a", n=2, temperature=1.0)
    a, b = (r.request_id for r in processed.requests)
    other, other_sink = client.add("a", "other")
    assert client.step(tokens(a, [], ERROR, "logits are NaN"), tokens(only(other), [7])) == [b]
    [error] = sink.errors
    assert isinstance(error, EngineRequestError)
    assert "logits are NaN" in str(error)
    assert other_sink.outputs
    assert client.output.num_unfinished_requests == 1


def test_an_output_that_cannot_be_read_fails_its_request_only(client):
    processed, sink = client.add("a", logprobs=1)
    other, other_sink = client.add("a", "other")
    bad = logprobs_lists([([7], [-1.0], 1)])
    bad.ranks = bad.logprobs = None  # type: ignore[assignment]
    internal = only(processed)
    to_abort = client.step(tokens(internal, [7], new_logprobs=bad), tokens(only(other), [7]))
    assert to_abort == [internal]
    assert len(sink.errors) == 1
    assert other_sink.outputs


def test_fail_all_fails_every_sink_once(client):
    sinks = [client.add("a", str(i), n=1 + i, temperature=1.0)[1] for i in range(3)]
    error = EngineDeadError("gone")
    client.output.fail_all(error)
    client.output.fail_all(error)
    assert [sink.errors for sink in sinks] == [[error]] * 3
    assert client.output.abort_requests(["0", "1"]) == []
    assert not client.output.has_unfinished


def test_trap_53_54_times_come_from_two_clocks_that_never_mix(client):
    processed, sink = client.add("a")
    internal = only(processed)
    kinds = EngineCoreEventType
    events = [EngineCoreEvent(kinds.QUEUED, 7.0), EngineCoreEvent(kinds.SCHEDULED, 9.0)]
    stats = PrefillStats(5, 3, 2, 1, 0, 0.25)
    client.step(tokens(internal, [7], events=events, prefill_stats=stats), timestamp=9.5)
    again = [EngineCoreEvent(kinds.PREEMPTED, 10.0), EngineCoreEvent(kinds.SCHEDULED, 11.0)]
    client.step(tokens(internal, [8], events=again), timestamp=12.0)
    client.step(tokens(internal, [9], LENGTH), timestamp=14.0)
    metrics = sink.last.metrics
    assert metrics.arrival_time == 5.0
    assert (metrics.time_to_first_token, metrics.e2e_latency) == (1.0, 3.0)
    assert (metrics.queued_time, metrics.prefill_time, metrics.decode_time) == (2.0, 0.5, 4.5)
    assert (metrics.num_generation_tokens, metrics.num_preemptions) == (3, 1)
    assert (metrics.num_image_tokens, metrics.num_encoded_images) == (2, 1)
    assert (metrics.num_encoder_hits, metrics.encode_time) == (0, 0.25)
    assert sink.last.num_cached_tokens == 3


def test_t61_tokens_are_counted_not_encoded_again(client):
    processed, sink = client.add("a", max_tokens=3)
    ids = [i for letter in "The" for i in ids_of(letter)]
    client.step(tokens(only(processed), ids[:1]))
    client.step(tokens(only(processed), ids[1:], LENGTH))
    assert sink.last.metrics.num_generation_tokens == 3
    assert sink.joined().token_ids == ids
    assert len(ids_of(sink.joined().text)) == 1


def test_without_detokenizing_there_is_no_text():
    client = Client(None)
    processed, sink = client.add([7], logprobs=0)
    rows = logprobs_lists([([8], [-1.0], 1)])
    client.step(tokens(only(processed), [8], STOP, new_logprobs=rows))
    answer = sink.joined()
    assert (answer.text, answer.token_ids) == ("", [8])
    assert answer.logprobs is not None
    assert answer.logprobs[0][8].decoded_token is None


def test_5000_requests_leave_nothing_behind(client):
    for i in range(5000):
        processed, _ = client.add("a", str(i % 50))
        if i % 3:
            client.step(tokens(only(processed), [7], STOP))
        else:
            client.output.abort_requests([processed.internal_id])
    output = client.output
    assert (output._states, output._parents, output._by_request_id) == ({}, {}, {})
