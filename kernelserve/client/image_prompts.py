"""Puts images into a prompt: each placeholder becomes the tokens of its image."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernelserve.client.chat_prompt import IMAGE_SLOT, LITERAL_MARK, plain_text
from kernelserve.client.image_inputs import ImageInput, ImageInputs
from kernelserve.client.literal_text import LiteralMarker
from kernelserve.client.prompt import PromptParts
from kernelserve.client.tokenizer import ClientTokenizer
from kernelserve.errors import InvalidRequestError
from kernelserve.protocol import EngineReady, MultiModalFeatureSpec, PlaceholderRange

__all__ = ["EncodedPrompt", "ImagePrompts"]


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt as the engine takes it, and its text before images were put in."""

    text: str | None
    token_ids: list[int]
    features: list[MultiModalFeatureSpec]


class ImagePrompts:
    """Encodes the prompts of a model that takes images, also those without one. Thread-safe.

    In a rendered chat a placeholder is only what the template wrote. In a prompt that the caller wrote it is his own,
    and there must be as many as images. Text without images never becomes an image token.
    """

    def __init__(self, ready: EngineReady, tokenizer: ClientTokenizer, images: ImageInputs) -> None:
        assert ready.image_token_id is not None
        self._tokenizer = tokenizer
        self._images = images
        self._image_token_id = ready.image_token_id
        self._image_token = tokenizer.backend.id_to_token(ready.image_token_id) or ""
        self._marker = LiteralMarker([self._image_token])

    def encode(self, parts: PromptParts) -> EncodedPrompt:
        """Return the prompt with its images in place. Raises InvalidRequestError."""
        inputs = self._images.load(parts.images, parts.processor_options) if parts.images else []
        if parts.token_ids is not None:
            ids = self._expand_ids(parts.token_ids, inputs)
            return EncodedPrompt(parts.text, ids, self._place(ids, inputs))
        text = parts.text or ""
        placeholder = self._images.placeholder() if inputs else self._image_token
        if not parts.is_marked and not inputs:
            text = self._marker.mark(text)
        expanded = self._expand_text(text, placeholder, inputs)
        ids = self._tokenizer.encode_marked(expanded, add_special_tokens=not parts.is_marked)
        if parts.is_marked:
            ids = self._tokenizer.with_bos(ids)
        return EncodedPrompt(plain_text(text, placeholder), ids, self._place(ids, inputs))

    def prepare(self) -> None:
        """Begin to start what processes images."""
        self._images.prepare()

    def close(self) -> None:
        """Let go of what processes images."""
        self._images.close()

    def _expand_text(self, text: str, placeholder: str, inputs: Sequence[ImageInput]) -> str:
        place = f"(?<!{LITERAL_MARK}){re.escape(placeholder)}|{IMAGE_SLOT}"
        pieces = re.split(place, text)
        if len(pieces) - 1 != len(inputs):
            raise _wrong_count(len(pieces) - 1, len(inputs), repr(placeholder))
        expanded = pieces[0]
        for one, piece in zip(inputs, pieces[1:], strict=True):
            expanded += one.image.expansion + piece
        return expanded

    def _expand_ids(self, ids: list[int], inputs: Sequence[ImageInput]) -> list[int]:
        """Expand placeholders among token ids, unless that has been done."""
        if not inputs or ids.count(self._image_token_id) == sum(i.num_embeds for i in inputs):
            return ids
        placeholder = self._images.placeholder()
        token_id = self._tokenizer.backend.token_to_id(placeholder)
        num_places = 0 if token_id is None else ids.count(token_id)
        if num_places != len(inputs):
            raise _wrong_count(num_places, len(inputs), f"token {token_id}")
        remaining = iter(inputs)
        expanded: list[int] = []
        for one in ids:
            if one != token_id:
                expanded.append(one)
                continue
            text = next(remaining).image.expansion
            expanded += self._tokenizer.encode(text, add_special_tokens=False)
        return expanded

    def _place(self, ids: list[int], inputs: Sequence[ImageInput]) -> list[MultiModalFeatureSpec]:
        """Give each image its image tokens, in order: only expansions hold any."""
        places = [i for i, token_id in enumerate(ids) if token_id == self._image_token_id]
        needed = sum(one.num_embeds for one in inputs)
        if len(places) != needed:
            raise InvalidRequestError(
                f"the prompt has {len(places)} image tokens (id {self._image_token_id}), its "
                f"{len(inputs)} images have {needed}: do not write image tokens yourself"
            )
        features = []
        for one in inputs:
            own, places = places[: one.num_embeds], places[one.num_embeds :]
            length = own[-1] + 1 - own[0]
            mask = None
            if length != one.num_embeds:
                flags = bytearray(length)
                for place in own:
                    flags[place - own[0]] = 1
                mask = bytes(flags)
            position = PlaceholderRange(own[0], length, mask)
            features.append(MultiModalFeatureSpec("image", one.mm_hash, position, one.image.data))
        return features


def _wrong_count(num_places: int, num_images: int, placeholder: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"the prompt has {num_places} places for images ({placeholder}) and {num_images} images: "
        "there must be one for each. `chat` puts them where the model expects them"
    )
