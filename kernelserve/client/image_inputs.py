"""Turns the images of a prompt into what the model takes: read, hashed, processed, or found in the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelserve.client.tokenizer import ClientTokenizer
from kernelserve.errors import InvalidRequestError
from kernelserve.multimodal.image_hash import hash_image
from kernelserve.multimodal.image_limits import ImageLimits
from kernelserve.multimodal.image_reader import ImageReader
from kernelserve.multimodal.processor_cache import ProcessorCache
from kernelserve.multimodal.processor_messages import ImageTask, ProcessedImage, ProcessorSpec
from kernelserve.multimodal.processor_process import ProcessorProcess
from kernelserve.protocol import EngineReady

__all__ = ["ImageInput", "ImageInputs"]

_TILING_ONLY_ALONE = frozenset({"llava_onevision"})
"""Model types whose processors cut an image into tiles only if the prompt has no other."""


@dataclass(frozen=True, slots=True)
class ImageInput:
    """One image, ready for the model."""

    mm_hash: str
    image: ProcessedImage
    num_tokens: int
    """Of its expansion."""
    num_embeds: int


class ImageInputs:
    """The images of one model. Thread-safe."""

    def __init__(
        self,
        ready: EngineReady,
        tokenizer: ClientTokenizer,
        *,
        limits: ImageLimits | None = None,
    ) -> None:
        assert ready.image_token_id is not None
        self._ready = ready
        self._tokenizer = tokenizer
        self._image_token_id = ready.image_token_id
        self._model = f"{ready.config.model}@{ready.config.revision}"
        self._tiles_only_alone = ready.model_type in _TILING_ONLY_ALONE
        self._reader = ImageReader(limits)
        is_cached = ready.config.mm_processor_cache_type != "none"
        self._cache = ProcessorCache(ready.config.mm_processor_cache_bytes if is_cached else 0)
        spec = ProcessorSpec(ready.mm_processor_dir, ready.tokenizer_dir)
        self._processor = ProcessorProcess(spec)

    def placeholder(self) -> str:
        """Return what stands for one image in a prompt."""
        return self._processor.placeholder()

    def load(self, sources: Sequence[Any], options: Mapping[str, Any]) -> list[ImageInput]:
        """Return the images of one prompt in order. Raises InvalidRequestError that says which one is wrong."""
        self._check_count(len(sources))
        has_company = self._tiles_only_alone and len(sources) > 1
        inputs: list[ImageInput] = []
        num_tokens = 0
        for number, source in enumerate(sources, 1):
            try:
                inputs.append(self._load_one(source, options, has_company))
                num_tokens += inputs[-1].num_tokens
                self._check_tokens(inputs[-1], num_tokens)
            except InvalidRequestError as error:
                if len(sources) == 1:
                    raise
                raise InvalidRequestError(f"image {number} of {len(sources)}: {error}") from error
        return inputs

    def prepare(self) -> None:
        """Begin to start the processor, which takes longer than any image."""
        self._processor.prepare()

    def close(self) -> None:
        """End the processor's process."""
        self._processor.close()

    def _load_one(self, source: Any, options: Mapping[str, Any], has_company: bool) -> ImageInput:
        pixels = self._reader.read(source)
        changes = {**options, "has_company": True} if has_company else options
        mm_hash = hash_image(pixels, model=self._model, options=changes)
        image = self._cache.get(mm_hash)
        if image is None:
            image = self._processor.process(
                ImageTask(pixels.to_array(), dict(options), has_company)
            )
            self._cache.put(mm_hash, image)
        ids = self._tokenizer.encode(image.expansion, add_special_tokens=False)
        return ImageInput(mm_hash, image, len(ids), ids.count(self._image_token_id))

    def _check_count(self, count: int) -> None:
        limit = self._ready.max_images_per_prompt or self._ready.max_model_len
        if count > limit:
            raise InvalidRequestError(f"the prompt has {count} images, the limit is {limit}")

    def _check_tokens(self, one: ImageInput, num_tokens: int) -> None:
        if not one.num_embeds:
            raise InvalidRequestError(
                f"the image processor's text for an image has no token {self._image_token_id}: the "
                f"files in {self._ready.mm_processor_dir} do not belong to this model"
            )
        limit = self._ready.max_image_embeds
        if limit and one.num_embeds > limit:
            raise InvalidRequestError(
                f"the image needs {one.num_embeds} embeddings, the engine holds {limit} for one "
                "image: scale it down, or start the engine with a larger encoder_cache_size"
            )
        if num_tokens >= self._ready.max_model_len:
            raise InvalidRequestError(
                f"with this image the prompt has {num_tokens} tokens for images alone, but "
                f"max_model_len is {self._ready.max_model_len}: use fewer or smaller images"
            )
