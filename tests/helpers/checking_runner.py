"""A model runner on fake K/V that proves, at every step, that each request reads its own, and has its images."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from kernelserve.core.scheduler_output import ModelRunnerOutput, NewRequestData, SchedulerOutput
from kernelserve.protocol import MultiModalFeatureSpec, PlaceholderRange

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
        self.encode_time = 0.0
        """Of each step that encodes."""
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
        output.encode_time = self.encode_time if plan.scheduled_encoder_inputs else 0.0
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
