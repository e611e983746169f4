"""The scheduler plans images: encoded whole, cut anywhere, each embedding there when it is needed."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelserve.protocol import FinishReason, MultiModalFeatureSpec, PlaceholderRange
from tests.helpers.scheduling import Engine, embed_positions, fake_image, solo_output


def with_images(
    engine: Engine, req_id: str, prompt: list[int], *images: Any, **options: Any
) -> None:
    engine.submit(req_id, prompt, images=images, **options)


def test_t52_a_mask_counts_for_the_encoder_and_tokens_for_the_sequence():
    engine = Engine(encoder_cache_size=3)
    image = fake_image("a", 1, 6, b"\0\1\1\0\1\0")
    assert embed_positions(image) == [2, 3, 5]
    with_images(engine, "r", list(range(9)), image)
    (first, *_) = engine.run()
    assert first.num_scheduled_tokens == {"r": 9}
    record = engine.scheduler.step_records[0]
    assert [entry.num_embeds for entry in record.encoder_inputs] == [3]
    assert engine.received["r"].token_ids == solo_output(list(range(9)), 4, [image])


def test_t49_an_image_is_encoded_in_the_step_of_its_first_embedding_and_kept_until_its_last_ran():
    engine = Engine(encoder_cache_size=10, long_prefill_token_threshold=2)
    with_images(engine, "r", [0] * 9, fake_image("a", 2, 5, b"\0\0\1\1\1"), max_tokens=1)
    seen = []
    while engine.scheduler.has_requests():
        plan = engine.schedule()
        seen.append(
            (len(plan.scheduled_encoder_inputs), engine.scheduler.stats().encoder_cache_used)
        )
        engine.execute_and_update(plan)
    # tokens 0-1, 2-3 (no embedding in them), 4-5, 6-7, 8
    assert seen[:5] == [(0, 0), (0, 0), (1, 3), (0, 3), (0, 0)]


def test_the_budget_holds_back_further_images_but_never_the_only_one():
    engine = Engine(encoder_cache_size=40, max_num_batched_tokens=12, max_num_seqs=4)
    with_images(engine, "big", [0] * 22, fake_image("a", 1, 20))
    with_images(engine, "small", [1] * 9, fake_image("b", 0, 8))
    plans = engine.run()
    assert [[i.mm_hash for i in plan.scheduled_encoder_inputs] for plan in plans[:3]] == [
        ["a"],
        ["b"],
        [],
    ]
    refusals = [r for record in engine.scheduler.step_records for r in record.refusals]
    assert [r.reason for r in refusals if r.request_id == "small"] == ["budget"]


def test_a_range_is_cut_in_front_of_an_image_that_has_no_room():
    engine = Engine(encoder_cache_size=8)
    with_images(engine, "r", [0] * 24, fake_image("a", 2, 8), fake_image("b", 14, 8))
    plans = engine.run()
    assert [plan.num_scheduled_tokens.get("r") for plan in plans[:2]] == [14, 10]
    assert plans[1].free_encoder_mm_hashes == ["a"]


def test_a_waiting_request_waits_for_room_and_says_so():
    engine = Engine(encoder_cache_size=8, long_prefill_token_threshold=3)
    with_images(engine, "r", [0] * 9, fake_image("a", 0, 8))
    with_images(engine, "q", [1] * 9, fake_image("b", 0, 8))
    engine.step()
    (refusal,) = engine.scheduler.step_records[0].refusals
    assert (refusal.request_id, refusal.reason) == ("q", "encoder")
    assert (refusal.needed, refusal.available) == (8, 0)
    engine.run()
    assert engine.received["q"].finish_reason is FinishReason.LENGTH


def test_t51_equal_placeholders_of_different_images_share_no_blocks():
    engine = Engine(encoder_cache_size=40)
    prompt = [0] * 21
    engine.finish_alone("r", prompt, images=[fake_image("a", 3, 16)])
    engine.finish_alone("same", prompt, images=[fake_image("a", 3, 16)])
    engine.finish_alone("other", prompt, images=[fake_image("b", 3, 16)])
    engine.finish_alone("moved", prompt, images=[fake_image("a", 2, 16)])
    engine.finish_alone("text", prompt)
    cached = [engine.cached_tokens(name) for name in ("same", "other", "moved", "text")]
    assert cached == [20, 0, 0, 0]


def test_t50_a_hit_inside_an_image_that_is_gone_encodes_it_again():
    engine = Engine(encoder_cache_size=16)
    engine.finish_alone("r", [0] * 20, images=[fake_image("a", 3, 16)])
    engine.finish_alone("evicts", [1] * 20, images=[fake_image("b", 3, 16)])
    engine.finish_alone("again", [0] * 19 + [9], images=[fake_image("a", 3, 16)])
    assert engine.cached_tokens("again") == 16
    last = [record for record in engine.scheduler.step_records if record.encoder_inputs][-1]
    assert [(e.request_id, e.mm_hash) for e in last.encoder_inputs] == [("again", "a")]


def test_a_reset_frees_what_no_request_needs_without_waiting_for_one():
    engine = Engine(encoder_cache_size=40, long_prefill_token_threshold=5)
    engine.finish_alone("done", [1] * 9, images=[fake_image("a", 1, 6)])
    with_images(engine, "runs", [0] * 9, fake_image("b", 1, 6))
    engine.step()
    assert set(engine.runner.encoded) == {"a", "b"}
    assert engine.scheduler.reset_encoder_cache() is False
    engine.step()
    assert set(engine.runner.encoded) == {"b"}
    engine.run()
    assert engine.received["runs"].token_ids == solo_output([0] * 9, 4, [fake_image("b", 1, 6)])
    assert engine.scheduler.reset_encoder_cache() is True
    assert engine.scheduler.has_requests()
    engine.run()
    assert engine.runner.encoded == {}
    assert not engine.scheduler.has_requests()


def test_each_request_hears_once_what_its_images_cost():
    engine = Engine(encoder_cache_size=40, long_prefill_token_threshold=9)
    engine.runner.encode_time = 0.25
    engine.submit("r", [0] * 21, images=[fake_image("a", 1, 6), fake_image("b", 11, 6)])
    engine.run()
    engine.submit("q", [1] * 9, images=[fake_image("a", 1, 6)])
    engine.submit("again", [0] * 21, images=[fake_image("a", 1, 6), fake_image("b", 11, 6)])
    engine.submit("text", [2] * 9)
    engine.run()
    costs = {}
    for name, received in engine.received.items():
        (stats,) = received.prefill_stats
        costs[name] = (
            stats.num_image_tokens,
            stats.num_encoded_images,
            stats.num_encoder_hits,
            stats.encode_time,
        )
    assert costs == {
        "r": (12, 2, 0, 0.5),  # in two steps
        "q": (6, 0, 1, 0.0),
        "again": (12, 0, 0, 0.0),  # all in the prefix
        "text": (0, 0, 0, 0.0),
    }


def test_an_image_that_cannot_be_encoded_fails_whoever_needs_it_in_that_step():
    engine = Engine(encoder_cache_size=40)
    engine.runner.unreadable = {"bad"}
    for name in ("r", "q"):
        with_images(engine, name, [0] * 9, fake_image("bad", 1, 6))
    with_images(engine, "good", [0] * 9, fake_image("fine", 1, 6))
    engine.run()
    reasons = [engine.received[name].finish_reason for name in ("r", "q", "good")]
    assert reasons == [FinishReason.ERROR, FinishReason.ERROR, FinishReason.LENGTH]
    engine.runner.unreadable = set()
    received = engine.finish_alone("later", [0] * 9, images=[fake_image("bad", 1, 6)])
    assert received.finish_reason is FinishReason.LENGTH
    assert engine.cached_tokens("later") == 0


def spec(offset: int, length: int, **changes: Any) -> MultiModalFeatureSpec:
    position = PlaceholderRange(offset, length, changes.pop("is_embed", None))
    values: dict[str, Any] = {
        "modality": "image",
        "mm_hash": "a",
        "position": position,
        "data": {},
    } | changes
    return MultiModalFeatureSpec(**values)


@pytest.mark.parametrize(
    ("images", "words"),
    [
        ([spec(1, 9)], "image 1 of 1 has 9 embeddings, but the encoder cache holds 8"),
        ([spec(1, 9, data=None)], "has 9 embeddings"),
        ([spec(4, 7)], "stands at tokens 4 to 11 of a prompt of 10"),
        ([spec(-1, 3)], "stands at tokens -1 to 2"),
        ([spec(2, 0)], "stands at tokens 2 to 2"),
        ([spec(1, 4), spec(4, 2)], "image 2 of 2 stands at tokens 4 to 6 .* before it end at 5"),
        ([spec(1, 4, is_embed=b"\1\1")], "marks 2 positions, but takes 4"),
        ([spec(1, 2, is_embed=b"\0\0")], "takes no embedding"),
        ([spec(1, 2, is_embed=b"\1\2")], "other bytes than 0 and 1"),
        ([spec(1, 2, modality="sound")], "kind 'sound'"),
        ([spec(1, 2, data=None)], "send it again"),
    ],
)
def test_t56_what_can_never_be_computed_is_refused_with_the_numbers(images: Any, words: str):
    engine = Engine(encoder_cache_size=8)
    reason = engine.scheduler.why_impossible(engine.request("r", [0] * 10, images=images))
    assert reason is not None
    assert re.search(words, reason), reason


def test_a_text_model_refuses_images():
    engine = Engine()
    reason = engine.scheduler.why_impossible(engine.request("r", [0] * 9, images=[spec(1, 2)]))
    assert reason == "the prompt has images, but the model takes none"


def test_an_image_that_must_not_be_cut_may_exceed_the_budget():
    engine = Engine(encoder_cache_size=20, whole_images=True, max_num_batched_tokens=8)
    with_images(engine, "r", [0] * 20, fake_image("a", 3, 12))
    plans = engine.run()
    assert [plan.num_scheduled_tokens.get("r") for plan in plans[:3]] == [3, 12, 5]


@pytest.mark.parametrize("shared", [False, True])
def test_t48_a_victim_takes_back_its_image_unless_another_needs_it(shared: bool):
    """The urgent one lacks a block after the first has got its tokens and its image in the same step."""
    engine = Engine(
        num_blocks=8 if shared else 5,
        policy="priority",
        long_prefill_token_threshold=4,
        encoder_cache_size=8,
    )
    image = fake_image("a", 8, 4)
    with_images(engine, "victim", [1] * 12, image, priority=5, max_tokens=1)
    if shared:
        with_images(engine, "other", [2] * 12, image, priority=1, max_tokens=1)
    with_images(engine, "urgent", [3] * 3, priority=0, max_tokens=8)
    engine.step()
    engine.step()
    plan = engine.step()
    assert plan.preempted_req_ids == {"victim"}
    assert [entry.mm_hash for entry in plan.scheduled_encoder_inputs] == ["a"] * shared
    assert engine.scheduler.stats().encoder_cache_cached == 4 * shared
    engine.run()
    assert engine.received["victim"].token_ids == solo_output([1] * 12, 1, [image])


@st.composite
def prompts(draw: st.DrawFn) -> tuple[list[int], list[MultiModalFeatureSpec]]:
    """A prompt of texts and images in turn; names are few, so that images come again."""
    tokens: list[int] = []
    images = []
    for _ in range(draw(st.integers(0, 3))):
        tokens += [1] * draw(st.integers(0, 5))
        name = draw(st.sampled_from("abcd"))
        length = 2 + 3 * "abcd".index(name)
        mask = b"\0" + b"\1" * length + b"\0" if draw(st.booleans()) else None
        size = length if mask is None else length + 2
        images.append(fake_image(name, len(tokens), size, mask))
        tokens += [0] * size
    return [*tokens, *[2] * draw(st.integers(1, 4))], images


@settings(max_examples=120, derandomize=True, deadline=None)
@given(
    asked=st.lists(
        st.tuples(prompts(), st.integers(1, 10), st.integers(0, 2)), min_size=1, max_size=7
    ),
    num_blocks=st.integers(18, 26),
    encoder_cache_size=st.integers(11, 30),
    budget=st.integers(4, 20),
    threshold=st.sampled_from([0, 1, 3]),
    policy=st.sampled_from(["fcfs", "priority"]),
    caching=st.booleans(),
    whole_images=st.booleans(),
    aborts=st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=4),
    unreadable=st.sets(st.sampled_from("abcd"), max_size=1),
)
def test_answers_never_change_and_everything_ends(
    asked: Any,
    num_blocks: int,
    encoder_cache_size: int,
    budget: int,
    threshold: int,
    policy: str,
    caching: bool,
    whole_images: bool,
    aborts: Any,
    unreadable: set[str],
) -> None:
    engine = Engine(
        num_blocks=num_blocks,
        max_num_seqs=4,
        max_num_batched_tokens=budget,
        encoder_cache_size=encoder_cache_size,
        long_prefill_token_threshold=threshold,
        policy=policy,
        enable_prefix_caching=caching,
        whole_images=whole_images,
    )
    engine.runner.unreadable = unreadable
    for i, ((prompt, images), max_tokens, priority) in enumerate(asked):
        engine.submit(f"r{i}", prompt, images=images, max_tokens=max_tokens, priority=priority)
        if i % 2:
            engine.step()
    aborted = set()
    for number, in_flight in aborts:
        plan = engine.schedule()
        if in_flight:
            aborted |= {name for name, _ in engine.abort(f"r{number}")}
        engine.execute_and_update(plan)
        if number % 3 == 0:
            engine.scheduler.reset_encoder_cache()
        if number == 6:
            engine.scheduler.reset_prefix_cache(reset_running_requests=True)
        aborted |= {name for name, _ in engine.abort(f"r{number}")}
    engine.run()
    for i, ((prompt, images), max_tokens, _) in enumerate(asked):
        received = engine.received[f"r{i}"]
        expected = solo_output(prompt, max_tokens, images)
        if received.finish_reason is FinishReason.ERROR:
            assert any(image.mm_hash in unreadable for image in images)
        elif f"r{i}" not in aborted:
            assert received.token_ids == expected
        assert received.token_ids == expected[: len(received.token_ids)]
