"""A model's own image processor of transformers, in its Pillow flavour: without torch and torchvision.

Only the helper process uses this. Videos are not processed, so what their processors need is not asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from kernelserve.errors import ModelFilesError
from kernelserve.multimodal.processor_messages import ImageTask, ProcessedImage, ProcessorSpec
from kernelserve.wire import WireArray

__all__ = ["HFProcessor"]

_NAMING_FILES = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")
_TEXT_KEYS = {"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"}
_SEPARATOR = "\n"
_DTYPES = {"f": "float32", "i": "int64", "u": "uint8", "b": "bool"}


class HFProcessor:
    """Processes one image at a time. Raises whatever transformers raises."""

    def __init__(self, spec: ProcessorSpec) -> None:
        folder = Path(spec.processor_dir)
        self._processor = _load(folder, Path(spec.tokenizer_dir))
        self._tap = _TextTap(self._processor.tokenizer)
        self._processor.tokenizer = self._tap
        self.placeholder: str = self._processor.image_token
        """What its templates put where an image belongs."""

    def process(self, task: ImageTask) -> ProcessedImage:
        """Return the arrays for the model and the text that stands for the image."""
        pixels = np.frombuffer(task.pixels.data, np.uint8).reshape(task.pixels.shape)
        image = Image.fromarray(pixels)
        if task.has_company:
            return self._process_first([image, image], task.options)
        inputs = self._processor(
            images=[image], text=[self.placeholder], return_tensors="np", **task.options
        )
        data = {name: _to_wire(value) for name, value in inputs.items() if name not in _TEXT_KEYS}
        return ProcessedImage(self._tap.text, data)

    def _process_first(self, images: list[Any], options: Mapping[str, Any]) -> ProcessedImage:
        """Return the first of the images of one prompt as the processor makes it beside the others."""
        inputs = self._processor(
            images=[images],
            text=[_SEPARATOR.join([self.placeholder] * len(images))],
            return_tensors="np",
            **options,
        )
        data = {
            name: _to_wire(np.asarray(value)[:1])
            for name, value in inputs.items()
            if name not in _TEXT_KEYS and len(value) == len(images)
        }
        return ProcessedImage(self._tap.text.partition(_SEPARATOR)[0], data)


class _TextTap:
    """A tokenizer that remembers the last text: by then the processor has expanded its placeholder.

    The text, not its ids: what stands beside the image may merge with the tokens at its edges.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.text = ""

    def __call__(self, text: Any, **options: Any) -> Any:
        self.text = text if isinstance(text, str) else text[0]
        return self._tokenizer(text, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def _load(folder: Path, tokenizer_dir: Path) -> Any:
    from transformers import AutoImageProcessor, AutoTokenizer

    kind = _find_class(folder)
    parts: dict[str, Any] = {
        "image_processor": AutoImageProcessor.from_pretrained(folder, backend="pil"),
        "tokenizer": AutoTokenizer.from_pretrained(tokenizer_dir),
    }
    _forgo_number_words(kind)
    arguments = [parts.get(name) for name in kind.get_attributes()]
    settings, _ = kind.get_processor_dict(folder)
    return _without_videos(kind).from_args_and_dict(arguments, settings)


def _find_class(folder: Path) -> Any:
    from transformers.models.auto.processing_auto import (
        PROCESSOR_MAPPING_NAMES,
        processor_class_from_name,
    )

    named = [_read(folder / name).get("processor_class") for name in _NAMING_FILES]
    named.append(PROCESSOR_MAPPING_NAMES.get(_read(folder / "config.json").get("model_type", "")))
    for name in named:
        if name and (kind := processor_class_from_name(name)) is not None:
            return kind
    raise ModelFilesError(f"{folder} names no image processor that this transformers release knows")


def _without_videos(kind: Any) -> Any:
    """Return the class, made to accept that it gets no video processor: those need torch."""

    def check(self: Any, name: str, argument: Any) -> Any:
        if argument is None:
            return type(None)
        return kind.check_argument_for_proper_class(self, name, argument)

    return type(kind.__name__, (kind,), {"check_argument_for_proper_class": check})


def _forgo_number_words(kind: Any) -> None:
    """SmolVLM insists on a package that spells the number of a video's frames. There are none here."""
    import sys

    module = sys.modules[kind.__module__]
    if getattr(module, "num2words", ...) is None:
        module.num2words = str  # type: ignore[attr-defined]


def _read(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {}


def _to_wire(value: Any) -> WireArray:
    array = np.asarray(value)
    dtype = _DTYPES[array.dtype.kind]
    array = np.ascontiguousarray(array, dtype)
    return WireArray(dtype, array.shape, array.reshape(-1).view(np.uint8).data)
