"""A scheduler with a model runner that proves, at every step, that each request reads its own K/V."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelserve.core.encoder_cache_manager import EncoderCacheManager
from kernelserve.core.kv_cache_manager import KVCacheManager
from kernelserve.core.request import Request, RequestStatus
from kernelserve.core.scheduler import Scheduler
from kernelserve.core.scheduler_output import ModelRunnerOutput, NewRequestData, SchedulerOutput
from kernelserve.protocol import (
    EngineCoreEvent,
    FinishReason,
    MultiModalFeatureSpec,
    PlaceholderRange,
    PrefillStats,
)
from kernelserve.sampling_params import SamplingParams

VOCAB_SIZE = 50


Images = Sequence[MultiModalFeatureSpec]


def fake_image(
    name: str, offset: int, length: int, is_embed: bytes | None = None
) -> MultiModalFeatureSpec:
    """An image without pixels; its name is its content."""
    return MultiModalFeatureSpec("image", name, PlaceholderRange(offset, length, is_embed), {})


def embed_positions(image: MultiModalFeatureSpec) -> list[int]:
    """The token positions that take an embedding of the image."""
    offset, mask = image.position.offset, image.position.is_embed
    return [offset + i for i in range(image.position.length) if mask is None or mask[i]]


def chain(tokens: Iterable[int], images: Images = ()) -> list[int]:
    """Stand-in for the K/V of each position: a value that depends on all tokens and images up to it."""
    places = {
        position: (image.mm_hash, index)
        for image in images
        for index, position in enumerate(embed_positions(image))
    }
    values, value = [], 0
    for position, token in enumerate(tokens):
        seen: Hashable = places.get(position, token)
        value = hash((value, seen))
        values.append(value)
    return values


def next_token(tokens: list[int], images: Images = ()) -> int:
    """The fake model: a function of all tokens and images so far."""
    return chain(tokens, images)[-1] % VOCAB_SIZE


def solo_output(prompt: list[int], num_tokens: int, images: Images = ()) -> list[int]:
    """What the fake model generates for `prompt` without any engine."""
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(next_token(tokens, images))
    return tokens[len(prompt) :]


@dataclass
class Row:
    """What the runner knows about a request."""

    tokens: list[int]
    block_ids: list[int]
    num_computed: int
    images: Images = ()

    def slot(self, position: int, block_size: int) -> tuple[int, int]:
        return self.block_ids[position // block_size], position % block_size


class CheckingRunner:
    """Executes plans on fake K/V. Asserts the invariants of a plan, and that all K/V read are the right ones."""

    def __init__(self, block_size: int, encoder_cache_size: int = 0) -> None:
        self.block_size = block_size
        self.encoder_cache_size = encoder_cache_size
        self.encoded: dict[str, int] = {}
        """Name of each image that is kept -> its embeddings."""
        self.whole_images = False
        """No step may compute a part of an image."""
        self.unreadable: set[str] = set()
        """Images that cannot be encoded."""
        self.rows: dict[str, Row] = {}
        self.slots: dict[tuple[int, int], int] = {}
        self.errors: dict[str, str] = {}
        """Fails these requests in the next step."""

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        self._update_rows(plan)
        failed = self._encode(plan)
        self._take_embeds(plan, failed)
        self._write(plan)
        self._read(plan)
        output = ModelRunnerOutput([], [], errors=self.errors)
        output.failed_encoder_mm_hashes = failed
        self.errors = {}
        for req_id in sorted(plan.num_scheduled_tokens):  # an order of its own, as a real batch has
            row = self.rows[req_id]
            sampled = []
            if row.num_computed == len(row.tokens):
                sampled = [next_token(row.tokens, row.images)]
                row.tokens += sampled
            output.req_ids.append(req_id)
            output.sampled_token_ids.append(sampled)
        return output

    def _update_rows(self, plan: SchedulerOutput) -> None:
        for req_id in plan.finished_req_ids | plan.preempted_req_ids:
            self.rows.pop(req_id, None)
        for new in plan.scheduled_new_reqs:
            assert new.req_id not in self.rows, "a new request is known already"
            self._check_new(new)
            self.rows[new.req_id] = Row(
                list(new.token_ids),
                list(new.block_ids),
                new.num_computed_tokens,
                new.mm_features,
            )
        known = plan.scheduled_cached_reqs
        columns = (known.req_ids, known.new_block_ids, known.num_computed_tokens)
        for req_id, block_ids, num_computed in zip(*columns, strict=True):
            self.rows[req_id].block_ids += block_ids
            assert self.rows[req_id].num_computed == num_computed
        ids = [new.req_id for new in plan.scheduled_new_reqs] + known.req_ids
        assert sorted(ids) == sorted(plan.num_scheduled_tokens)
        assert all(n > 0 for n in plan.num_scheduled_tokens.values())
        assert sum(plan.num_scheduled_tokens.values()) == plan.total_num_scheduled_tokens

    def _check_new(self, new: NewRequestData) -> None:
        assert 0 < new.num_prompt_tokens <= len(new.token_ids)
        assert new.num_computed_tokens < len(new.token_ids), "nothing is left to compute"

    def _encode(self, plan: SchedulerOutput) -> list[str]:
        """Free and encode what the plan says; return what could not be encoded."""
        for name in plan.free_encoder_mm_hashes:
            self.encoded.pop(name, None)
        names = [image.mm_hash for image in plan.scheduled_encoder_inputs]
        assert len(set(names)) == len(names), "an image is encoded twice in a step"
        for image in plan.scheduled_encoder_inputs:
            assert image.mm_hash not in self.encoded, "an image that is there is encoded again"
            if image.mm_hash not in self.unreadable:
                self.encoded[image.mm_hash] = image.position.num_embeds
        assert sum(self.encoded.values()) <= self.encoder_cache_size
        return [name for name in names if name in self.unreadable]

    def _take_embeds(self, plan: SchedulerOutput, failed: list[str]) -> None:
        wanted = set()
        for req_id, num_tokens in plan.num_scheduled_tokens.items():
            row = self.rows[req_id]
            here = range(row.num_computed, row.num_computed + num_tokens)
            for image in row.images:
                first, last = image.position.offset, image.position.offset + image.position.length
                assert not (self.whole_images and first < here.stop < last), "an image is cut"
                if image.mm_hash in failed and image.position.offset < here.stop:
                    self.errors[req_id] = "an image cannot be encoded"
                if any(position in here for position in embed_positions(image)):
                    wanted.add(image.mm_hash)
                    assert image.mm_hash in (*failed, *self.encoded), f"{req_id} lacks an image"
        unused = {image.mm_hash for image in plan.scheduled_encoder_inputs} - wanted
        assert not unused, f"{unused} are encoded for nobody"

    def _write(self, plan: SchedulerOutput) -> None:
        written: set[tuple[int, int]] = set()
        for req_id, num_tokens in plan.num_scheduled_tokens.items():
            row = self.rows[req_id]
            end = row.num_computed + num_tokens
            assert end <= len(row.tokens)
            values = chain(row.tokens[:end], row.images)
            for position in range(row.num_computed, end):
                slot = row.slot(position, self.block_size)
                assert slot[0] != 0, "K/V are written to the null block"
                assert slot not in written, "two requests write one slot"
                written.add(slot)
                self.slots[slot] = values[position]
            row.num_computed = end

    def _read(self, plan: SchedulerOutput) -> None:
        for req_id in plan.num_scheduled_tokens:
            row = self.rows[req_id]
            for position, value in enumerate(chain(row.tokens[: row.num_computed], row.images)):
                assert self.slots.get(row.slot(position, self.block_size)) == value, (
                    f"{req_id} reads wrong K/V at {position}"
                )


@dataclass
class Received:
    """What a client has received for one request."""

    token_ids: list[int] = field(default_factory=list)
    events: list[EngineCoreEvent] = field(default_factory=list)
    prefill_stats: list[PrefillStats] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None


class Engine:
    """Scheduler and runner in a loop; every step checks integrity, budgets and that nothing follows an end."""

    def __init__(
        self,
        *,
        num_blocks: int = 65,
        block_size: int = 4,
        max_model_len: int = 512,
        enable_prefix_caching: bool = True,
        max_num_seqs: int = 8,
        max_num_batched_tokens: int = 64,
        encoder_cache_size: int = 0,
        **options: Any,
    ) -> None:
        self.block_size = block_size
        self.kv = KVCacheManager(
            num_blocks,
            block_size=block_size,
            max_model_len=max_model_len,
            enable_prefix_caching=enable_prefix_caching,
        )
        self.scheduler = Scheduler(
            self.kv,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
            encoder_cache=EncoderCacheManager(encoder_cache_size),
            **options,
        )
        self.runner = CheckingRunner(block_size, encoder_cache_size)
        self.runner.whole_images = options.get("whole_images", False)
        self.received: dict[str, Received] = {}
        self.now = 0.0

    def request(
        self,
        request_id: str,
        prompt: list[int],
        *,
        max_tokens: int | None = 4,
        priority: int = 0,
        arrival_time: float | None = None,
        cache_salt: str | None = None,
        client_index: int = 0,
        images: Images = (),
        **params: Any,
    ) -> Request:
        self.now += 1
        return Request(
            request_id,
            prompt,
            SamplingParams(max_tokens=max_tokens, **params),
            block_size=self.block_size,
            now=self.now,
            arrival_time=self.now if arrival_time is None else arrival_time,
            priority=priority,
            cache_salt=cache_salt,
            client_index=client_index,
            mm_features=images,
        )

    def submit(self, request_id: str, prompt: list[int], **options: Any) -> Request:
        request = self.request(request_id, prompt, **options)
        assert self.scheduler.why_impossible(request) is None
        self.received[request_id] = Received()
        self.scheduler.add_request(request)
        return request

    def schedule(self) -> SchedulerOutput:
        self.now += 1
        plan = self.scheduler.schedule(self.now)
        self.scheduler.check_integrity()
        return plan

    def execute_and_update(self, plan: SchedulerOutput) -> None:
        output = self.runner.execute(plan)
        outputs = self.scheduler.update_from_output(plan, output, self.now)
        for core_output in (o for of_client in outputs.values() for o in of_client):
            received = self.received[core_output.request_id]
            assert received.finish_reason is None, "an output after the last one"
            received.token_ids += core_output.new_token_ids
            received.events += core_output.events
            if core_output.prefill_stats is not None:
                received.prefill_stats.append(core_output.prefill_stats)
            received.finish_reason = core_output.finish_reason
            received.stop_reason = core_output.stop_reason
        self.scheduler.check_integrity()

    def step(self) -> SchedulerOutput:
        plan = self.schedule()
        self.execute_and_update(plan)
        return plan

    def abort(self, *request_ids: str) -> list[tuple[str, int]]:
        aborted = self.scheduler.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED)
        self.scheduler.check_integrity()
        return aborted

    def run(self, max_steps: int = 2000) -> list[SchedulerOutput]:
        """Step until nothing is left; fails if that takes too long."""
        plans: list[SchedulerOutput] = []
        while self.scheduler.has_requests():
            assert len(plans) < max_steps, "no progress"
            plans.append(self.step())
        assert not self.runner.rows, "the runner still holds a request"
        stats = self.scheduler.stats()
        assert stats.num_used_blocks == 0
        assert stats.encoder_cache_used == 0
        return plans

    def finish_alone(self, request_id: str, prompt: list[int], **options: Any) -> Received:
        """Submit, run until all is done, return what came."""
        self.submit(request_id, prompt, **options)
        self.run()
        return self.received[request_id]

    def cached_tokens(self, request_id: str) -> int:
        """How many prompt tokens of the request were found in the prefix cache."""
        (stats,) = self.received[request_id].prefill_stats
        return stats.num_cached_tokens
