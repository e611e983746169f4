"""Finds what is wrong with the images of a request before it is queued."""

from __future__ import annotations

from kernelserve.core.request import Request
from kernelserve.protocol import MultiModalFeatureSpec

__all__ = ["find_image_problem"]


def find_image_problem(request: Request, capacity: int) -> str | None:
    """Return why the images of `request` can never be computed, or None.

    `capacity` is the size of the encoder cache in embeddings; 0: the model takes no images.
    """
    if request.mm_features and capacity == 0:
        return "the prompt has images, but the model takes none"
    end = 0
    for number, feature in enumerate(request.mm_features, start=1):
        problem = _problem_of(feature, end, request.num_prompt_tokens, capacity)
        if problem is not None:
            return f"image {number} of {len(request.mm_features)} {problem}"
        end = feature.position.offset + feature.position.length
    return None


def _problem_of(
    feature: MultiModalFeatureSpec, begin: int, num_prompt_tokens: int, capacity: int
) -> str | None:
    position = feature.position
    end = position.offset + position.length
    if feature.modality != "image":
        return f"is of the kind {feature.modality!r}: only 'image' is known"
    if not begin <= position.offset < end <= num_prompt_tokens:
        return (
            f"stands at tokens {position.offset} to {end} of a prompt of {num_prompt_tokens}, where the "
            f"images before it end at {begin}"
        )
    if position.is_embed is not None and len(position.is_embed) != position.length:
        return f"marks {len(position.is_embed)} positions, but takes {position.length}"
    if position.is_embed is not None and set(position.is_embed) - {0, 1}:
        return "marks its positions with other bytes than 0 and 1"
    if position.num_embeds == 0:
        return "takes no embedding"
    if position.num_embeds > capacity:
        return (
            f"has {position.num_embeds} embeddings, but the encoder cache holds {capacity}: use a "
            "smaller image or raise encoder_cache_size"
        )
    if feature.data is None:
        return "came without its pixels, and the engine does not have them: send it again"
    return None
