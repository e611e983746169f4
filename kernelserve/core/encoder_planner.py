"""Fits the images of a request into a step: what is encoded, what is there, where the range is cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kernelserve.core.encoder_cache_manager import EncoderCacheManager
from kernelserve.core.request import Request
from kernelserve.core.step_plan import StepPlan
from kernelserve.protocol import EncoderInput, MultiModalFeatureSpec, PlaceholderRange

__all__ = ["EncoderNeeds", "EncoderPlanner"]


@dataclass(slots=True)
class EncoderNeeds:
    """What the images in a range of tokens ask for."""

    num_tokens: int
    """Tokens of the range that can be computed: up to the first image that does not fit."""
    found: list[MultiModalFeatureSpec] = field(default_factory=list)
    missing: list[MultiModalFeatureSpec] = field(default_factory=list)
    """To be encoded in this step."""
    needed: int = 0
    """Embeddings of the image that cut the range; 0: nothing did."""
    available: int = 0


class EncoderPlanner:
    """Decides which images are encoded in a step. `fit` only looks; `commit` takes.

    An image is encoded whole in the step that computes its first embedding, and kept until its last
    one is computed; tokens are cut anywhere in between. The budget of a step bounds the embeddings
    encoded in it, but for an image that is larger than all of it: that one is encoded alone. So
    whatever fits the encoder cache gets its turn. A request that is inside an image needs nothing
    more to get out of it, so no two can wait for each other.

    With `whole_images` the range never ends inside an image. It ends in front of one, or behind one
    that it begins with: such an image may exceed the budget of tokens, or it might wait for ever.
    """

    def __init__(self, cache: EncoderCacheManager, *, whole_images: bool = False) -> None:
        self._cache = cache
        self._whole_images = whole_images

    def fit(self, request: Request, start: int, num_tokens: int, plan: StepPlan) -> EncoderNeeds:
        """Cut the tokens [start, start + num_tokens) in front of the first image that does not fit."""
        needs = EncoderNeeds(num_tokens)
        if not request.mm_features:
            return needs
        if self._whole_images:
            num_tokens = needs.num_tokens = _uncut(request.mm_features, start, num_tokens)
        room, budget = self._cache.num_available_embeds, plan.encoder_budget
        may_exceed = not plan.encoder_inputs
        seen: set[str] = set()
        for feature in _overlapping(request.mm_features, start, start + num_tokens):
            mm_hash, num_embeds = feature.mm_hash, feature.position.num_embeds
            if mm_hash in seen:
                continue
            seen.add(mm_hash)
            is_there = self._cache.has(mm_hash)
            cost = 0 if self._cache.is_used(mm_hash) else num_embeds
            limit = room if is_there or may_exceed else min(room, budget)
            if cost > limit:
                needs.num_tokens = max(0, feature.position.offset - start)
                needs.needed, needs.available = num_embeds, max(0, limit)
                break
            room -= cost
            if is_there:
                needs.found.append(feature)
            else:
                budget -= num_embeds
                may_exceed = False
                needs.missing.append(feature)
        return needs

    def commit(self, request: Request, needs: EncoderNeeds, plan: StepPlan) -> None:
        """Take what `fit` has found for a request that gets its tokens."""
        req_id = request.request_id
        for feature in needs.found:
            if self._cache.reference(req_id, feature.mm_hash):
                entry = EncoderInput(req_id, feature.mm_hash, feature.position.num_embeds)
                plan.encoder_hits.append(entry)
        for feature in needs.missing:
            num_embeds = feature.position.num_embeds
            self._cache.allocate(req_id, feature.mm_hash, num_embeds)
            plan.encoder_inputs[feature.mm_hash] = (req_id, feature)
            plan.encoder_budget -= num_embeds

    def revoke(self, request: Request, plan: StepPlan) -> None:
        """Undo what a request that is being preempted was to have encoded, unless others need it."""
        self._cache.release_all(request.request_id)
        plan.encoder_hits = [e for e in plan.encoder_hits if e.request_id != request.request_id]
        for mm_hash, (req_id, feature) in list(plan.encoder_inputs.items()):
            if req_id == request.request_id and not self._cache.is_used(mm_hash):
                self._cache.forget(mm_hash)
                del plan.encoder_inputs[mm_hash]
                plan.encoder_budget += feature.position.num_embeds


def _uncut(features: list[MultiModalFeatureSpec], start: int, num_tokens: int) -> int:
    """Move the end of a range out of the image that it cuts."""
    end = start + num_tokens
    for feature in features:
        first, last = feature.position.offset, feature.position.offset + feature.position.length
        if first < end < last:
            return first - start if start < first else last - start
    return num_tokens


def _overlapping(
    features: list[MultiModalFeatureSpec], start: int, end: int
) -> Iterator[MultiModalFeatureSpec]:
    """The images that have an embedding in [start, end)."""
    for feature in features:
        position = feature.position
        if position.offset >= end:
            return
        if start < position.offset + position.length and _has_embeds(position, start, end):
            yield feature


def _has_embeds(position: PlaceholderRange, start: int, end: int) -> bool:
    if position.is_embed is None:
        return True
    first = max(0, start - position.offset)
    return 1 in position.is_embed[first : end - position.offset]
